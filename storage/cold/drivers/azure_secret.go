//go:build !noazure

package drivers

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
)

// azureSecret is what the environment and the files it names say. Key and token never leave it but into requests.
type azureSecret struct {
	account, key, sas string
	endpoint          string // of a connection string
}

// errBadKey stands for the SDK's own error, which quotes the key.
var errBadKey = errors.New("the account key is not base64")

// azureSource reads the secret again when it has changed.
type azureSource struct {
	watch watch

	mu     sync.Mutex
	secret azureSecret
}

func newAzureSource() *azureSource {
	return &azureSource{watch: watch{
		env: []string{"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING"},
		files: func() []string {
			return []string{os.Getenv("AZURE_STORAGE_KEY_FILE"), os.Getenv("AZURE_STORAGE_SAS_TOKEN_FILE")}
		},
		now: time.Now,
	}}
}

func (s *azureSource) read() azureSecret {
	changed := s.watch.changed()
	s.mu.Lock()
	defer s.mu.Unlock()
	if changed {
		s.secret = lookForAzureSecret()
	}
	return s.secret
}

func lookForAzureSecret() azureSecret {
	secret := azureSecret{
		account: os.Getenv("AZURE_STORAGE_ACCOUNT"),
		key:     valueOrFile("AZURE_STORAGE_KEY"),
		sas:     strings.TrimPrefix(valueOrFile("AZURE_STORAGE_SAS_TOKEN"), "?"),
	}
	domain, protocol := "core.windows.net", "https"
	text := os.Getenv("AZURE_STORAGE_CONNECTION_STRING")
	if text == "" || secret.key != "" || secret.sas != "" {
		return secret
	}
	for part := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "AccountName":
			secret.account = value
		case "AccountKey":
			secret.key = value
		case "SharedAccessSignature":
			secret.sas = value
		case "BlobEndpoint":
			secret.endpoint = value
		case "EndpointSuffix":
			domain = value
		case "DefaultEndpointsProtocol":
			protocol = value
		}
	}
	if secret.endpoint == "" {
		secret.endpoint = protocol + "://" + secret.account + ".blob." + domain
	}
	return secret
}

// valueOrFile is a variable, or what lies in the file that it names with _FILE behind it.
func valueOrFile(name string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	path := os.Getenv(name + "_FILE")
	if path == "" {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "" // as good as none: the store refuses the request and says so
	}
	return strings.TrimSpace(string(text))
}

// azureKeys gives the signer the key that lies there now.
type azureKeys struct {
	source *azureSource
	signer *azblob.SharedKeyCredential

	mu   sync.Mutex
	used string
}

// Do is called for each request, before it is signed.
func (p *azureKeys) Do(r *policy.Request) (*http.Response, error) {
	if key := p.source.read().key; key != "" {
		if err := p.use(key); err != nil {
			return nil, err
		}
	}
	return r.Next()
}

func (p *azureKeys) use(key string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key == p.used {
		return nil
	}
	if err := p.signer.SetAccountKey(key); err != nil {
		return errBadKey
	}
	p.used = key
	return nil
}

// azureTokens puts the token that lies there now behind the address of a request.
type azureTokens struct{ source *azureSource }

// Do is called for each request.
func (p *azureTokens) Do(r *policy.Request) (*http.Response, error) {
	u := r.Raw().URL
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += p.source.read().sas
	return r.Next()
}

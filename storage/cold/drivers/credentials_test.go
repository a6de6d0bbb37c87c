package drivers_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/danubemq/danube/integration/objects"
	"github.com/danubemq/danube/storage/cold"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The keys in a file expire while the store is in use. Every kind of call goes on with what lies there afterwards.
func TestNewCredentialsArePickedUp(t *testing.T) {
	server := objects.StartS3(t)
	server.SetEnv(t)
	second := server.WithKeys(t, "secondkey", "secondsecret")
	file := filepath.Join(t.TempDir(), "credentials")
	write := func(s *objects.Server) {
		text := "[default]\naws_access_key_id = " + s.Env["AWS_ACCESS_KEY_ID"] + "\naws_secret_access_key = " + s.Env["AWS_SECRET_ACCESS_KEY"] + "\n"
		writeFile(t, file, text)
	}
	write(server)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	p := objects.StartProxy(t, server)
	s := checked(t, server.URL(p.Addr), nil)
	put(t, s, "k", []byte("x"))
	signedBy := func(key string) func(*http.Request) bool {
		return func(r *http.Request) bool {
			return strings.Contains(r.Header.Get("Authorization"), "Credential="+key+"/")
		}
	}
	p.Add(objects.Fault{Match: signedBy("secondkey"), Target: second.Addr})
	p.Add(objects.Fault{Match: signedBy(server.Env["AWS_ACCESS_KEY_ID"]), Status: 403, Code: "ExpiredToken"})
	_, err := s.Put(t.Context(), "k2", cold.Bytes([]byte("x")))
	wantCause(t, err, cold.Denied)
	if strings.Contains(err.Error(), server.Env["AWS_SECRET_ACCESS_KEY"]) {
		t.Errorf("%q shows what nobody should see", err)
	}
	for name, call := range map[string]func(*cold.Store) error{
		"put":    func(s *cold.Store) error { _, err := s.Put(t.Context(), "k2", cold.Bytes([]byte("x"))); return err },
		"read":   func(s *cold.Store) error { return s.ReadAt(t.Context(), "k", make([]byte, 1), 0) },
		"stat":   func(s *cold.Store) error { _, err := s.Stat(t.Context(), "k"); return err },
		"list":   func(s *cold.Store) error { _, err := s.List(t.Context(), "", nil); return err },
		"delete": func(s *cold.Store) error { return s.Delete(t.Context(), "k3") },
	} {
		write(server)
		s := open(t, server.URL(p.Addr), nil)
		wantCause(t, s.ReadAt(t.Context(), "k", make([]byte, 1), 0), cold.Denied) // it has read the old file
		write(second)
		if err := call(s); err != nil {
			t.Errorf("%s with the new keys: %v", name, err)
		}
	}
}

// The key of an Azure account is rotated in the file that holds it.
func TestNewAzureKeyIsPickedUp(t *testing.T) {
	server := objects.StartAzure(t)
	file := filepath.Join(t.TempDir(), "key")
	t.Setenv("AZURE_STORAGE_ACCOUNT", server.Env["AZURE_STORAGE_ACCOUNT"])
	t.Setenv("AZURE_STORAGE_KEY", "")
	t.Setenv("AZURE_STORAGE_KEY_FILE", file)
	const wrong = "d3Jvbmc="
	writeFile(t, file, wrong)
	s := open(t, server.URL(server.Addr), nil)
	err := s.Check(t.Context())
	wantCause(t, err, cold.Denied)
	if strings.Contains(err.Error(), wrong) {
		t.Errorf("%q shows the key", err)
	}
	writeFile(t, file, server.Env["AZURE_STORAGE_KEY"]+"\n")
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// A token in an Azure address shows neither in an error nor in the name of the store.
func TestTokensAreNotShown(t *testing.T) {
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account")
	t.Setenv("AZURE_STORAGE_KEY", "")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=2021&sp=rw&sig=verysecretsignature%3D")
	s := open(t, "azblob://bucket?protocol=http&localemu=true&domain=127.0.0.1:1", func(c *cold.Config) { c.Attempts = 1 })
	err := s.Check(t.Context())
	wantCause(t, err, cold.Unavailable)
	if strings.Contains(err.Error(), "verysecret") || strings.Contains(s.String(), "verysecret") {
		t.Errorf("%q shows the token", err)
	}
	if !strings.Contains(err.Error(), "sig=…") {
		t.Errorf("%q does not show where it was: the test proves nothing", err)
	}
}

// An Azure token in a file is used, and replaced by the one that lies there later.
func TestNewAzureTokenIsPickedUp(t *testing.T) {
	server := objects.StartAzure(t)
	token := func(life time.Duration) string {
		key, err := azblob.NewSharedKeyCredential(server.Env["AZURE_STORAGE_ACCOUNT"], server.Env["AZURE_STORAGE_KEY"])
		if err != nil {
			t.Fatal(err)
		}
		c, err := container.NewClientWithSharedKeyCredential("http://"+server.Addr+"/"+server.Env["AZURE_STORAGE_ACCOUNT"]+"/bucket", key, nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now().Add(-2 * time.Hour)
		address, err := c.GetSASURL(sas.ContainerPermissions{Read: true, Write: true, Create: true, Add: true, List: true, Delete: true}, time.Now().Add(life), &container.GetSASURLOptions{StartTime: &began})
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return u.RawQuery
	}
	file := filepath.Join(t.TempDir(), "token")
	t.Setenv("AZURE_STORAGE_ACCOUNT", server.Env["AZURE_STORAGE_ACCOUNT"])
	t.Setenv("AZURE_STORAGE_KEY", "")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN_FILE", file)
	writeFile(t, file, token(-time.Hour))
	s := open(t, server.URL(server.Addr), nil)
	wantCause(t, s.Check(t.Context()), cold.Denied)
	writeFile(t, file, token(time.Hour))
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// A service account of Google is replaced by another one: tokens come from the one that lies in the file.
func TestNewGoogleAccountIsPickedUp(t *testing.T) {
	server := objects.StartGCS(t)
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token": %q, "token_type": "Bearer", "expires_in": 3600}`, "token-of"+r.URL.Path)
	}))
	t.Cleanup(issuer.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	secret := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	account := func(name string) string {
		text, err := json.Marshal(map[string]string{
			"type": "service_account", "client_email": name + "@test", "private_key": secret, "private_key_id": "1", "token_uri": issuer.URL + "/" + name,
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	file := filepath.Join(t.TempDir(), "account.json")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	writeFile(t, file, account("first"))
	p := objects.StartProxy(t, server)
	s := checked(t, strings.Replace(server.URL(p.Addr), "&anonymous=true", "", 1), nil)
	p.Add(objects.Fault{Status: 401, Code: "authError", Match: func(r *http.Request) bool { return r.Header.Get("Authorization") != "Bearer token-of/second" }})
	_, err = s.Put(t.Context(), "k", cold.Bytes([]byte("x")))
	wantCause(t, err, cold.Denied)
	writeFile(t, file, account("second"))
	put(t, s, "k", []byte("x"))
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	writeFile(t, file, `{"type": "service_account"`)
	eventually(t, func() bool {
		_, err := s.Stat(t.Context(), "k")
		return errors.Is(err, cold.Denied)
	})
}

// eventually polls until ok is true.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		if ok() {
			return
		}
		<-tick.C
	}
	t.Fatal("it never happened")
}

// Without any credentials the cause is theirs, and no attempt is made over and over.
func TestNoCredentials(t *testing.T) {
	server := objects.StartS3(t)
	server.SetEnv(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("HOME", t.TempDir())
	s := open(t, server.URL(server.Addr), nil)
	err := s.Check(t.Context())
	wantCause(t, err, cold.Denied)
	if attempts(err) > 2 || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("%d attempts: %v", attempts(err), err)
	}
}

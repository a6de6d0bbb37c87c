//go:build !noazure

package drivers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"gocloud.dev/blob/azureblob"

	"github.com/danubemq/danube/storage/cold"
)

func openAzure(ctx context.Context, bucket string, q url.Values, client *http.Client) (*cold.Bucket, error) {
	source := newAzureSource()
	service, err := azureService(q, source.read())
	if err == nil {
		err = left(q, "domain, protocol, localemu and storage_account")
	}
	if err != nil {
		return nil, fmt.Errorf("open azblob bucket: %w", err)
	}
	address, err := url.JoinPath(service, bucket)
	if err != nil {
		return nil, fmt.Errorf("open azblob bucket: %w", err)
	}
	api, err := azureClient(address, source, client)
	if err != nil {
		return nil, fmt.Errorf("open azblob bucket: %w", err)
	}
	b, err := azureblob.OpenBucket(ctx, api, nil)
	if err != nil {
		return nil, fmt.Errorf("open azblob bucket: %w", err)
	}
	upload := &azureUpload{api: api}
	return &cold.Bucket{Blob: b, Upload: upload.put, Answer: azureAnswer, Renew: source.watch.renew, Close: client.CloseIdleConnections}, nil
}

// azureUpload writes objects in one request of any length: gocloud's writer sends blocks, which need a buffer each and
// leave the blob without a digest.
type azureUpload struct{ api *container.Client }

func (u *azureUpload) put(ctx context.Context, key string, body io.ReadSeeker, absent bool) ([]byte, error) {
	kind, never := contentType, azcore.ETagAny
	options := &blockblob.UploadOptions{HTTPHeaders: &blob.HTTPHeaders{BlobContentType: &kind}}
	if absent {
		options.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &never}}
	}
	out, err := u.api.NewBlockBlobClient(key).Upload(ctx, streaming.NopCloser(body), options)
	if err != nil {
		return nil, err
	}
	return out.ContentMD5, nil
}

// azureService is the address of the account.
func azureService(q url.Values, secret azureSecret) (string, error) {
	emulator, err := takeBool(q, "localemu")
	if err != nil {
		return "", err
	}
	account := take(q, "storage_account")
	if account == "" {
		account = secret.account
	}
	domain, protocol := take(q, "domain"), take(q, "protocol")
	if secret.endpoint != "" && domain == "" {
		return secret.endpoint, nil
	}
	service, err := azureblob.NewServiceURL(&azureblob.ServiceURLOptions{
		AccountName: account, StorageDomain: domain, Protocol: protocol, IsLocalEmulator: emulator,
	})
	return string(service), err
}

func azureClient(address string, source *azureSource, client *http.Client) (*container.Client, error) {
	options := &container.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: client,
		Retry:     policy.RetryOptions{MaxRetries: -1},
	}}
	secret := source.read()
	switch {
	case secret.key != "":
		signer, err := azblob.NewSharedKeyCredential(secret.account, secret.key)
		if err != nil {
			return nil, errBadKey
		}
		options.PerCallPolicies = []policy.Policy{&azureKeys{source: source, signer: signer}}
		return container.NewClientWithSharedKeyCredential(address, signer, options)
	case secret.sas != "":
		options.PerCallPolicies = []policy.Policy{&azureTokens{source: source}}
		return container.NewClientWithNoCredential(address, options)
	}
	found, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{
		ClientOptions: policy.ClientOptions{Transport: client},
	})
	if err != nil {
		return nil, fmt.Errorf("find credentials: %w", err)
	}
	return container.NewClient(address, found, options)
}

func azureAnswer(err error) (status int, code string) {
	if re, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return re.StatusCode, re.ErrorCode
	}
	if _, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok || errors.Is(err, errBadKey) {
		return 0, noCredentials
	}
	return 0, ""
}

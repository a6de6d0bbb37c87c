//go:build !nos3

package drivers

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	gcaws "gocloud.dev/aws"
	"gocloud.dev/blob/s3blob"

	"github.com/danubemq/danube/storage/cold"
)

func openS3(ctx context.Context, bucket string, q url.Values, client *http.Client) (*cold.Bucket, error) {
	pathStyle, err := takeBool(q, "use_path_style")
	if err != nil {
		return nil, fmt.Errorf("open s3 bucket: %w", err)
	}
	cfg, err := gcaws.V2ConfigFromURLParams(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("open s3 bucket: %w", err)
	}
	source := newS3Source(q)
	if q.Get("anonymous") == "" {
		cfg.Credentials = source
	}
	cfg.HTTPClient = client
	cfg.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	cfg.Logger = logging.Nop{} // or it writes a line for each answer without a checksum
	api := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = pathStyle })
	b, err := s3blob.OpenBucket(ctx, api, bucket, nil)
	if err != nil {
		return nil, fmt.Errorf("open s3 bucket: %w", err)
	}
	own := &s3Bucket{api: api, name: bucket}
	return &cold.Bucket{
		Blob: b, Upload: own.put, Delete: own.remove,
		Answer: s3Answer, Renew: source.watch.renew, Close: client.CloseIdleConnections,
	}, nil
}

// s3Bucket writes objects in one request of any length. gocloud's writer cuts what is longer than 16 MiB into parts:
// ten requests where one does, a buffer for each part, no digest of the whole, a second way on which conditions may not
// be honoured, and parts that stay behind, unseen and paid for, when an upload is given up.
type s3Bucket struct {
	api  *s3.Client
	name string
}

func (b *s3Bucket) put(ctx context.Context, key string, body io.ReadSeeker, absent bool) ([]byte, error) {
	size, err := lengthOf(body)
	if err != nil {
		return nil, err
	}
	in := &s3.PutObjectInput{
		Bucket: &b.name, Key: &key, Body: body, ContentLength: &size, ContentType: aws.String(contentType),
	}
	if absent {
		in.IfNoneMatch = aws.String("*")
	}
	out, err := b.api.PutObject(ctx, in)
	if err != nil {
		return nil, err
	}
	sum, err := hex.DecodeString(strings.Trim(aws.ToString(out.ETag), `"`))
	if err != nil {
		return nil, nil // a tag of another kind
	}
	return sum, nil
}

// remove is one request where gocloud makes two: S3 says nothing of an object that is not there, and says so of a bucket.
func (b *s3Bucket) remove(ctx context.Context, key string) error {
	_, err := b.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: &key})
	return err
}

// s3Source is the chain of the SDK, built anew when what it reads has changed: the SDK itself reads keys in files and
// environment once for the life of the process.
type s3Source struct {
	params url.Values
	watch  watch

	mu    sync.Mutex
	chain aws.CredentialsProvider // caches by itself what expires
}

func newS3Source(params url.Values) *s3Source {
	return &s3Source{params: params, watch: watch{
		env:   []string{"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"},
		files: s3Files,
		now:   time.Now,
	}}
}

func s3Files() []string {
	home, _ := os.UserHomeDir() // without a home there are no files in it
	shared, config := os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), os.Getenv("AWS_CONFIG_FILE")
	if shared == "" {
		shared = filepath.Join(home, ".aws", "credentials")
	}
	if config == "" {
		config = filepath.Join(home, ".aws", "config")
	}
	return []string{shared, config}
}

// Retrieve is called for each request.
func (s *s3Source) Retrieve(ctx context.Context) (aws.Credentials, error) {
	chain, err := s.current(ctx)
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("%w: %w", errCredentials, err)
	}
	found, err := chain.Retrieve(ctx)
	if err != nil {
		return found, fmt.Errorf("%w: %w", errCredentials, err)
	}
	return found, nil
}

func (s *s3Source) current(ctx context.Context) (aws.CredentialsProvider, error) {
	s.mu.Lock()
	chain := s.chain
	s.mu.Unlock()
	if !s.watch.changed() && chain != nil {
		return chain, nil
	}
	cfg, err := gcaws.V2ConfigFromURLParams(ctx, s.params) // reads files, asks nobody
	if err != nil {
		s.watch.renew()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chain = cfg.Credentials
	return s.chain, nil
}

func s3Answer(err error) (status int, code string) {
	if re, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		status = re.HTTPStatusCode()
	}
	if ae, ok := errors.AsType[smithy.APIError](err); ok {
		code = ae.ErrorCode()
	}
	if errors.Is(err, errCredentials) {
		code = noCredentials
	}
	return status, code
}

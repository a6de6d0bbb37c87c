//go:build !nogcs

package drivers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"

	"github.com/danubemq/danube/storage/cold"
)

const gcsEndpoint = "https://storage.googleapis.com"

// gcs is a gocloud driver over the JSON interface of Cloud Storage: five requests are all that is needed. Google's own
// client, which gocloud's driver uses, brings gRPC, xDS and Arrow along: half of the program's size and twelve
// megabytes of the idle broker, for a transport that is not used.
type gcs struct {
	client *http.Client
	object string // address of the objects of the bucket, without a slash behind it
	upload string // address to which they are written
}

func openGCS(_ context.Context, bucket string, q url.Values, client *http.Client) (*cold.Bucket, error) {
	endpoint := take(q, "endpoint")
	anonymous, err := takeBool(q, "anonymous")
	if err == nil {
		err = left(q, "endpoint and anonymous")
	}
	if err != nil {
		return nil, fmt.Errorf("open gs bucket: %w", err)
	}
	if endpoint == "" {
		endpoint = gcsEndpoint
	}
	endpoint = strings.TrimSuffix(endpoint, "/")
	source := newGCSSource(client)
	path := "/storage/v1/b/" + url.PathEscape(bucket) + "/o"
	b := &gcs{client: client, object: endpoint + path, upload: endpoint + "/upload" + path}
	if !anonymous {
		b.client = withoutRedirects(source.sign(client.Transport))
	}
	return &cold.Bucket{
		Blob: blob.NewBucket(b), Upload: b.put, Answer: gcsAnswer,
		Renew: source.watch.renew, Close: client.CloseIdleConnections,
	}, nil
}

// gcsError is an answer that is no good one.
type gcsError struct {
	status  int
	reason  string
	message string
}

func (e *gcsError) Error() string {
	return fmt.Sprintf("status %d %s: %s", e.status, e.reason, e.message)
}

func gcsAnswer(err error) (status int, code string) {
	if ge, ok := errors.AsType[*gcsError](err); ok {
		// The reason is the same as for an object; a message about an object names the bucket, too.
		if ge.status == http.StatusNotFound && strings.Contains(ge.message, "bucket does not exist") {
			return ge.status, "NoSuchBucket"
		}
		return ge.status, ge.reason
	}
	if errors.Is(err, errCredentials) {
		return 0, noCredentials
	}
	return 0, ""
}

// ask makes one request. The caller closes the body of a good answer.
func (b *gcs) ask(ctx context.Context, method, address string, body io.ReadSeeker, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	if body != nil {
		if r.ContentLength, err = lengthOf(body); err != nil {
			return nil, err
		}
		r.Body = http.NoBody
		if r.ContentLength > 0 {
			r.Body = io.NopCloser(body)
		}
	}
	for name, values := range header {
		r.Header[name] = values
	}
	r.Header.Set("User-Agent", "danube")
	res, err := b.client.Do(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	return nil, readGCSError(res)
}

// readGCSError takes the reason from an answer.
func readGCSError(res *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return fmt.Errorf("read the answer %s: %w", res.Status, err)
	}
	var body struct {
		Error struct {
			Message string
			Errors  []struct{ Reason string }
		}
	}
	e := &gcsError{status: res.StatusCode}
	if json.Unmarshal(text, &body) != nil {
		e.message = string(text[:min(len(text), 200)]) // of a proxy, or of a read, which answers in plain text
		return e
	}
	e.message = body.Error.Message
	if len(body.Error.Errors) > 0 {
		e.reason = body.Error.Errors[0].Reason
	}
	return e
}

// gcsObject is what the interface says of an object, as far as it is asked.
type gcsObject struct {
	Name    string
	Size    string // a number, as text
	MD5Hash string // base64; objects that were composed have none
}

func (o *gcsObject) facts() (size int64, sum []byte, err error) {
	size, err = strconv.ParseInt(o.Size, 10, 64)
	if err != nil {
		return 0, nil, fmt.Errorf("read the size of %s: %w", o.Name, err)
	}
	sum, err = base64.StdEncoding.DecodeString(o.MD5Hash)
	return size, sum, err
}

// decode reads a good answer to its end.
func decode(res *http.Response, into any) error {
	return errors.Join(json.NewDecoder(res.Body).Decode(into), res.Body.Close())
}

func (b *gcs) put(ctx context.Context, key string, body io.ReadSeeker, absent bool) ([]byte, error) {
	q := url.Values{"uploadType": {"media"}, "name": {key}, "fields": {"name,size,md5Hash"}}
	if absent {
		q.Set("ifGenerationMatch", "0")
	}
	res, err := b.ask(ctx, http.MethodPost, b.upload+"?"+q.Encode(), body, http.Header{"Content-Type": {contentType}})
	if err != nil {
		return nil, err
	}
	var o gcsObject
	if err := decode(res, &o); err != nil {
		return nil, err
	}
	_, sum, err := o.facts()
	return sum, err
}

func (b *gcs) of(key string) string { return b.object + "/" + url.PathEscape(key) }

// Attributes tells size and digest of an object.
func (b *gcs) Attributes(ctx context.Context, key string) (*driver.Attributes, error) {
	res, err := b.ask(ctx, http.MethodGet, b.of(key)+"?fields=name,size,md5Hash", nil, nil)
	if err != nil {
		return nil, err
	}
	var o gcsObject
	if err := decode(res, &o); err != nil {
		return nil, err
	}
	size, sum, err := o.facts()
	return &driver.Attributes{Size: size, MD5: sum, AsFunc: b.As}, err
}

// ListPaged lists objects in the order of their keys.
func (b *gcs) ListPaged(ctx context.Context, opts *driver.ListOptions) (*driver.ListPage, error) {
	if opts.Delimiter != "" {
		return nil, errors.ErrUnsupported
	}
	q := url.Values{"prefix": {opts.Prefix}, "fields": {"items(name,size,md5Hash),nextPageToken"}}
	if opts.PageSize > 0 {
		q.Set("maxResults", strconv.Itoa(opts.PageSize))
	}
	if len(opts.PageToken) > 0 {
		q.Set("pageToken", string(opts.PageToken))
	}
	res, err := b.ask(ctx, http.MethodGet, b.object+"?"+q.Encode(), nil, nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items         []gcsObject
		NextPageToken string
	}
	if err := decode(res, &list); err != nil {
		return nil, err
	}
	page := &driver.ListPage{NextPageToken: []byte(list.NextPageToken)}
	for _, o := range list.Items {
		size, sum, err := o.facts()
		if err != nil {
			return nil, err
		}
		page.Objects = append(page.Objects, &driver.ListObject{Key: o.Name, Size: size, MD5: sum, AsFunc: b.As})
	}
	return page, nil
}

// Delete removes an object.
func (b *gcs) Delete(ctx context.Context, key string, _ *driver.DeleteOptions) error {
	res, err := b.ask(ctx, http.MethodDelete, b.of(key), nil, nil)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// ErrorCode tells gocloud what an error means; package cold asks gcsAnswer instead.
func (b *gcs) ErrorCode(err error) gcerrors.ErrorCode {
	switch status, _ := gcsAnswer(err); status {
	case http.StatusNotFound:
		return gcerrors.NotFound
	case http.StatusPreconditionFailed:
		return gcerrors.FailedPrecondition
	}
	return gcerrors.Unknown
}

//go:build !nogcs

package drivers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"gocloud.dev/blob/driver"
)

// gcsReader is the body of an answer.
type gcsReader struct {
	io.ReadCloser
	attrs driver.ReaderAttributes
}

// Attributes tells the size of the whole object.
func (r *gcsReader) Attributes() *driver.ReaderAttributes { return &r.attrs }

// As knows no type.
func (r *gcsReader) As(any) bool { return false }

// NewRangeReader asks for the range [offset, offset+length) of an object; a negative length is the rest.
func (b *gcs) NewRangeReader(ctx context.Context, key string, offset, length int64, _ *driver.ReaderOptions) (driver.Reader, error) {
	if length == 0 {
		a, err := b.Attributes(ctx, key)
		if err != nil {
			return nil, err
		}
		return &gcsReader{http.NoBody, driver.ReaderAttributes{Size: a.Size}}, nil
	}
	asked := fmt.Sprintf("bytes=%d-", offset)
	if length > 0 {
		asked += strconv.FormatInt(offset+length-1, 10)
	}
	res, err := b.ask(ctx, http.MethodGet, b.of(key)+"?alt=media", nil, http.Header{"Range": {asked}})
	if err != nil {
		return nil, err
	}
	size := res.ContentLength
	if res.StatusCode == http.StatusPartialContent {
		_, whole, _ := strings.Cut(res.Header.Get("Content-Range"), "/")
		size, err = strconv.ParseInt(whole, 10, 64)
	} else if offset > 0 {
		err = errors.New("a range was asked for, and the whole object came")
	}
	if err != nil {
		return nil, errors.Join(err, res.Body.Close())
	}
	return &gcsReader{res.Body, driver.ReaderAttributes{Size: size}}, nil
}

// As knows no type.
func (b *gcs) As(any) bool { return false }

// ErrorAs knows what errors.As does.
func (b *gcs) ErrorAs(err error, target any) bool { return errors.As(err, target) }

// NewTypedWriter is not needed: Upload is set.
func (b *gcs) NewTypedWriter(context.Context, string, string, *driver.WriterOptions) (driver.Writer, error) {
	return nil, errors.ErrUnsupported
}

// Copy is not needed: objects are written once.
func (b *gcs) Copy(context.Context, string, string, *driver.CopyOptions) error {
	return errors.ErrUnsupported
}

// SignedURL has nobody to sign for.
func (b *gcs) SignedURL(context.Context, string, *driver.SignedURLOptions) (string, error) {
	return "", errors.ErrUnsupported
}

// Close has nothing to give up: the connections are closed behind it.
func (b *gcs) Close() error { return nil }

var _ driver.Bucket = (*gcs)(nil)

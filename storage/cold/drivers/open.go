package drivers

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/danubemq/danube/storage/cold"
)

// Open opens the bucket of a URL. It makes no request. An unknown scheme and an
// unknown parameter are errors; neither shows a secret.
func Open(ctx context.Context, u *url.URL, hooks cold.Hooks) (*cold.Bucket, error) {
	if u.Host == "" {
		return nil, fmt.Errorf("open %s bucket: the URL names no bucket", u.Scheme)
	}
	q := u.Query()
	for name, values := range q {
		if len(values) > 1 {
			return nil, fmt.Errorf("open %s bucket: parameter %q is given twice", u.Scheme, name)
		}
	}
	client := newClient(hooks)
	switch u.Scheme {
	case "s3":
		return openS3(ctx, u.Host, q, client)
	case "gs":
		return openGCS(ctx, u.Host, q, client)
	case "azblob":
		return openAzure(ctx, u.Host, q, client)
	}
	return nil, fmt.Errorf("open bucket: no driver for %s://, known are s3, gs and azblob", u.Scheme)
}

// contentType is that of every object.
const contentType = "application/octet-stream"

// take removes a parameter and returns its value.
func take(q url.Values, name string) string {
	v := q.Get(name)
	q.Del(name)
	return v
}

func takeBool(q url.Values, name string) (bool, error) {
	v := take(q, name)
	if v == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Errorf("parameter %q is neither true nor false", name)
	}
	return on, nil
}

// left complains about the parameters that nobody took. Their values may be secrets somebody put there.
func left(q url.Values, known string) error {
	for name := range q {
		return fmt.Errorf("unknown parameter %q, known are %s", name, known)
	}
	return nil
}

// lengthOf is the number of bytes of a body, which is then at its beginning.
func lengthOf(body io.Seeker) (int64, error) {
	size, err := body.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	_, err = body.Seek(0, io.SeekStart)
	return size, err
}

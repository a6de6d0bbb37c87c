package cold

import (
	"context"
	"io"
	"net/url"
	"time"

	"gocloud.dev/blob"
)

// Opener opens the bucket of a URL without making a request. drivers.Open is the one of the clouds.
type Opener func(ctx context.Context, u *url.URL, hooks Hooks) (*Bucket, error)

// Hooks is what a driver tells, and is told, about its connections.
type Hooks struct {
	// Request is called for each HTTP request, with its method. Nil is allowed.
	Request func(method string)
	// Silence is how long a connection on which something is under way may be
	// silent before it is given up; 0: for ever.
	Silence time.Duration
}

// Bucket is what a driver opened, and what a Store must know of it. Only Blob is
// required.
type Bucket struct {
	Blob *blob.Bucket
	// Upload writes an object in one request, with absent only if there is none,
	// and returns what the server says is the MD5 of the bytes it got, nil if it
	// says nothing. Whatever error it returns, the object is whole or not there.
	// Nil: the writer of Blob.
	Upload func(ctx context.Context, key string, body io.ReadSeeker, absent bool) (sum []byte, err error)
	// Delete removes an object, or says nothing when there is none. Nil: that of
	// Blob, which may look for the object first.
	Delete func(ctx context.Context, key string) error
	// Answer takes from an error what the server said: the HTTP status, 0 when
	// there was no answer, and the server's own word for the cause.
	Answer func(error) (status int, code string)
	// Identity tells a folder from another one at its place; empty: the URL does.
	Identity string
	// Renew has the credentials read again before the next request.
	Renew func()
	// Close gives up what the driver holds, after Blob is closed.
	Close func()
}

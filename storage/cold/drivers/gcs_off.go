//go:build nogcs

package drivers

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/danubemq/danube/storage/cold"
)

func openGCS(context.Context, string, url.Values, *http.Client) (*cold.Bucket, error) {
	return nil, errors.New("this program was built without it (tag nogcs)")
}

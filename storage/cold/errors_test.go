package cold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestCauseOfAnswers(t *testing.T) {
	for _, test := range []struct {
		status int
		code   string
		want   Cause
	}{
		{503, "SlowDown", Throttled}, {429, "", Throttled}, {403, "rateLimitExceeded", Throttled}, {503, "ServerBusy", Throttled},
		{503, "", Unavailable}, {500, "InternalError", Unavailable}, {0, "", Unavailable}, {400, "RequestTimeout", Unavailable},
		{409, "ConditionalRequestConflict", Unavailable}, {400, "BadDigest", Unavailable}, {502, "", Unavailable},
		{403, "AccessDenied", Denied}, {400, "ExpiredToken", Denied}, {403, "RequestTimeTooSkewed", Denied}, {401, "", Denied},
		{403, "insufficientPermissions", Denied}, {0, "InvalidCredentials", Denied}, {403, "AuthenticationFailed", Denied},
		{404, "NoSuchKey", NotFound}, {404, "", NotFound}, {404, "BlobNotFound", NotFound},
		{404, "NoSuchBucket", NoBucket}, {404, "ContainerNotFound", NoBucket},
		{412, "PreconditionFailed", Exists}, {412, "conditionNotMet", Exists}, {409, "BlobAlreadyExists", Exists}, {412, "", Exists},
		{416, "InvalidRange", Corrupt}, {416, "", Corrupt},
		{507, "", Full}, {403, "QuotaExceeded", Full},
		{501, "NotImplemented", Refused}, {400, "InvalidArgument", Refused}, {405, "MethodNotAllowed", Refused}, {301, "PermanentRedirect", Refused},
	} {
		if got := causeOfAnswer(test.status, test.code); got != test.want {
			t.Errorf("%d %s is %v, want %v", test.status, test.code, got, test.want)
		}
	}
}

func TestCauseOfErrors(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithTimeout(t.Context(), 0)
	defer cancelLate()
	b := &Bucket{}
	for name, test := range map[string]struct {
		err          error
		outer, inner context.Context
		want         Cause
	}{
		"its own":             {fmt.Errorf("read: %w", Corrupt), t.Context(), t.Context(), Corrupt},
		"caller gave up":      {errors.New("x"), ended, ended, Canceled},
		"call's time is over": {errors.New("x"), late, late, TimedOut},
		"attempt's time":      {errors.New("x"), t.Context(), late, TimedOut},
		"silent connection":   {fmt.Errorf("read: %w", os.ErrDeadlineExceeded), t.Context(), t.Context(), TimedOut},
		"full":                {&fs.PathError{Err: syscall.ENOSPC}, t.Context(), t.Context(), Full},
		"permission":          {&fs.PathError{Err: syscall.EACCES}, t.Context(), t.Context(), Denied},
		"anything":            {errors.New("x"), t.Context(), t.Context(), Unavailable},
	} {
		if got := b.causeOf(test.err, test.outer, test.inner); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestVerdictsOfCauses(t *testing.T) {
	retriable := map[Cause]bool{Throttled: true, Unavailable: true, TimedOut: true, Denied: true, Full: true}
	texts := map[string]bool{}
	for c := Throttled; c <= Canceled; c++ {
		if c.Retriable() != retriable[c] {
			t.Errorf("%v: retriable %t", c, c.Retriable())
		}
		if c.again() && !c.Retriable() {
			t.Errorf("%v is tried again in vain", c)
		}
		if texts[c.Error()] || strings.HasPrefix(c.Error(), "cause ") {
			t.Errorf("%q is no name of its own", c.Error())
		}
		texts[c.Error()] = true
		for other := Throttled; other <= Canceled; other++ {
			if err := error(&Error{Op: "put", Cause: c}); errors.Is(err, other) != (c == other) {
				t.Errorf("an error for %v is %v", c, other)
			}
		}
	}
}

func TestErrorsShowNoSecret(t *testing.T) {
	const secret = "s3cr3tOfTheTest%2Bw%3D%3D"
	for _, text := range []string{
		`Put "https://a.blob.core.windows.net/c/k?se=2030&sig=` + secret + `&sv=1": dial tcp`,
		"GET https://b.s3/k?X-Amz-Signature=" + secret,
		"X-Amz-Security-Token: " + secret,
		"AccountKey=" + secret + ";EndpointSuffix=x",
		`{"access_token": "` + secret + `"}`,
		"dial https://user:" + secret + "@host/path",
		"Authorization: Bearer " + secret,
	} {
		err := scrub(fmt.Errorf("%s: %w", text, fs.ErrNotExist))
		if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%q shows it", err)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q has lost what it is", err)
		}
	}
	plain := errors.New("write topics/a/0/x.seg: no space left on device")
	if scrub(plain) != plain {
		t.Error("an error without a secret was changed")
	}
}

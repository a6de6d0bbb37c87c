package cold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"regexp"

	"gocloud.dev/gcerrors"

	"github.com/danubemq/danube/storage/disk"
)

// Cause says why a call on the store failed. It is an error to be compared with:
// errors.Is(err, cold.NotFound).
type Cause uint8

// The causes. Those above NotFound come by themselves and may go by themselves.
const (
	_ Cause = iota
	// Throttled: the store asks for fewer requests.
	Throttled
	// Unavailable: the store cannot be reached, or failed, or its folder is not mounted.
	Unavailable
	// TimedOut: no answer, or not all bytes, within the time.
	TimedOut
	// Denied: the credentials are missing, expired, or not enough. They are read again when they change.
	Denied
	// Full: no space, or a quota.
	Full
	// NotFound: there is no such object.
	NotFound
	// Exists: the object is there with other bytes.
	Exists
	// Corrupt: the bytes are not what they should be, or fewer.
	Corrupt
	// NoBucket: the bucket itself does not exist.
	NoBucket
	// Refused: the store does not understand or does not support the request.
	Refused
	// Canceled: the caller gave up.
	Canceled
)

// Error returns the cause as metrics and messages spell it.
func (c Cause) Error() string {
	names := [...]string{"none", "throttled", "unavailable", "timed out", "denied", "full", "not found", "exists with other bytes", "corrupt", "no bucket", "refused", "canceled"}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("cause %d", uint8(c))
}

// Retriable reports whether the same call may succeed later. Of a bucket that is
// missing, bytes that are wrong or a request that is not understood a repetition
// changes nothing.
func (c Cause) Retriable() bool { return c >= Throttled && c <= Full }

// again reports whether a call tries once more by itself. Credentials and space need somebody to do something first.
func (c Cause) again() bool { return c == Throttled || c == Unavailable || c == TimedOut }

// Error is a call on the store that failed. After every error of Put and Replace
// but Exists and Corrupt the object may be there all the same, or appear later:
// the same bytes under the same key again, or look (R5).
type Error struct {
	Op       string // put, replace, read, list, stat or delete
	Key      string // with the prefix of the store; of a list, the prefix
	Cause    Cause
	Attempts int   // requests made, counted as the store sees them but for the parts of an upload
	Err      error // the last error, without secrets in its text
}

func (e *Error) Error() string {
	text := e.Op + " " + e.Key + ": " + e.Cause.Error()
	if e.Attempts > 1 {
		text += fmt.Sprintf(" (%d attempts)", e.Attempts)
	}
	if e.Err == nil {
		return text
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns the last error.
func (e *Error) Unwrap() error { return e.Err }

// Is makes the cause one of the things the error is.
func (e *Error) Is(target error) bool {
	c, ok := target.(Cause)
	return ok && c == e.Cause
}

// scrubbed is an error whose text shows no secret.
type scrubbed struct {
	text string
	err  error
}

func (e *scrubbed) Error() string { return e.text }
func (e *scrubbed) Unwrap() error { return e.err }

// secretText finds what signs a request where it may stand in an address or a header that an SDK quotes.
var secretText = regexp.MustCompile(`(?i)((?:sig|signature|x-amz-[a-z-]+|x-goog-[a-z-]+|accountkey|sharedaccesssignature|access_token|authorization)["']?\s*[=:]\s*["']?(?:bearer |basic )?)[^&\s"';]+|(://)[^/\s@]+@`)

func scrub(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	clean := secretText.ReplaceAllString(text, "$1$2…")
	if clean == text {
		return err
	}
	return &scrubbed{clean, err}
}

// causeOf judges the error of one attempt. outer is the context of the call, inner that of the attempt.
func (b *Bucket) causeOf(err error, outer, inner context.Context) Cause {
	var own Cause
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(outer.Err(), context.Canceled):
		return Canceled
	case outer.Err() != nil, inner.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return TimedOut
	}
	if b.Answer != nil {
		status, code := b.Answer(err)
		return causeOfAnswer(status, code)
	}
	return causeWithoutAnswer(err)
}

// causeOfAnswer judges what a server said. The words are those of S3, GCS and Azure; a status decides where there is
// no word that we know. Without an answer at all, nothing but the network can have failed: gocloud calls a host that
// is not found an object that is not found.
func causeOfAnswer(status int, code string) Cause {
	switch code {
	case "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "TooManyRequestsException",
		"BandwidthLimitExceeded", "ServerBusy", "rateLimitExceeded", "userRateLimitExceeded":
		return Throttled
	case "NoSuchBucket", "ContainerNotFound", "ContainerDisabled", "AccountNotFound":
		return NoBucket
	case "PreconditionFailed", "BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet", "conditionNotMet":
		return Exists
	case "ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch", "Md5Mismatch":
		return Unavailable // a race, a slow sender, or bytes hurt on their way
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch",
		"RequestTimeTooSkewed", "RequestExpired", "AccessDenied", "InvalidCredentials", "AuthenticationFailed":
		return Denied
	case "NoSuchKey", "BlobNotFound":
		return NotFound
	case "InvalidRange", "requestedRangeNotSatisfiable":
		return Corrupt // shorter than its reader knows it to be
	case "QuotaExceeded", "XMinioStorageFull", "InsufficientStorage":
		return Full
	case "NotImplemented":
		return Refused
	}
	return causeOfStatus(status)
}

func causeOfStatus(status int) Cause {
	switch status {
	case 0, http.StatusRequestTimeout:
		return Unavailable
	case http.StatusUnauthorized, http.StatusForbidden:
		return Denied
	case http.StatusNotFound:
		return NotFound
	case http.StatusPreconditionFailed:
		return Exists
	case http.StatusRequestedRangeNotSatisfiable:
		return Corrupt
	case http.StatusTooManyRequests:
		return Throttled
	case http.StatusInsufficientStorage:
		return Full
	case http.StatusNotImplemented:
		return Refused
	}
	if status >= 500 {
		return Unavailable
	}
	return Refused
}

// causeWithoutAnswer judges an error of a driver that speaks to no server.
func causeWithoutAnswer(err error) Cause {
	switch {
	case disk.NoSpace(err):
		return Full
	case errors.Is(err, fs.ErrPermission):
		return Denied
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		return NotFound
	case gcerrors.FailedPrecondition:
		return Exists
	case gcerrors.PermissionDenied:
		return Denied
	case gcerrors.ResourceExhausted:
		return Full
	case gcerrors.DeadlineExceeded:
		return TimedOut
	case gcerrors.InvalidArgument, gcerrors.Unimplemented:
		return Refused
	}
	return Unavailable
}

// Package objects gives tests an object store that fails when it is told to: real
// servers of the S3, GCS and Azure interfaces on loopback ([StartS3], [StartGCS],
// [StartAzure]), and a [Proxy] before them that answers with errors, waits, falls
// silent, throttles, refuses credentials, or lets a request through and says so
// before the caller hears of it.
//
// A server whose program is missing skips the test and names the package to
// install; under CI=true that is a failure.
package objects

// Package drivers opens the buckets of the clouds: s3://, gs:// and azblob://.
// It is the one package that links their SDKs, which double the program, and only
// the program names it: [Open] is given to cold.Config. gs:// needs none.
//
// Build tags leave a cloud out: nos3, nogcs, noazure.
//
// # What is the same for all three
//
// One HTTP/1.1 transport for each bucket, without a limit of connections: under
// HTTP/2 all requests share one connection, and one that hangs, or a lost
// packet, holds up every other. A connection on which nothing passes for a while
// is given up. Nothing retries by itself: package cold decides about that, and
// counts. An object is written in one request, whatever its length, and what the
// server says of its digest is handed back.
//
// # Credentials
//
// They come from where the cloud's own tools look: environment, files, the
// machine's metadata service. They are never part of the URL. Files and
// environment are looked at again once a second and when the store refused a
// request; what changed is used from the next request on, in every operation
// alike, because all of them share one source.
//
//   - s3: AWS_ACCESS_KEY_ID …, AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE, AWS_WEB_IDENTITY_TOKEN_FILE, containers, EC2
//   - gs: GOOGLE_APPLICATION_CREDENTIALS, gcloud's own file, the metadata server
//   - azblob: AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN (each also with _FILE behind it: a
//     file that holds the value), AZURE_STORAGE_CONNECTION_STRING, else what azidentity finds
package drivers

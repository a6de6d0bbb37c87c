package objects

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Server is an object server of one test, with an empty bucket named "bucket".
type Server struct {
	Addr string            // host:port
	Env  map[string]string // what a client must find in its environment
	kind string
	dir  string // of the bucket, where the server has one
}

// URL is the bucket as seen through addr: the server's own or a proxy's.
func (s *Server) URL(addr string) string {
	switch s.kind {
	case "s3":
		return "s3://bucket?endpoint=http://" + addr + "&region=us-east-1&use_path_style=true"
	case "gs":
		return "gs://bucket?endpoint=http://" + addr + "&anonymous=true"
	}
	return "azblob://bucket?protocol=http&localemu=true&domain=" + addr
}

// SetEnv puts what clients need into the environment of this test.
func (s *Server) SetEnv(t *testing.T) {
	t.Helper()
	for name, value := range s.Env {
		t.Setenv(name, value)
	}
}

// The keys of the servers. Azure's emulator takes any account with a published key; this pair is made for the test.
const (
	s3Key        = "testkey"
	s3Secret     = "testsecret"
	azureAccount = "danubetest"
	azureKey     = "ZGFudWJlLXRlc3Qta2V5LW9mLW5vLWFjY291bnQ="
)

// StartS3 starts versitygw: ranges and conditional writes.
func StartS3(t testing.TB) *Server {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "bucket"), 0o755); err != nil {
		t.Fatal(err)
	}
	return startS3(t, dir, s3Key, s3Secret)
}

// WithKeys starts a further server of the same S3 bucket, which takes other keys.
func (s *Server) WithKeys(t testing.TB, key, secret string) *Server {
	t.Helper()
	return startS3(t, s.dir, key, secret)
}

func startS3(t testing.TB, dir, key, secret string) *Server {
	t.Helper()
	program := find(t, "versitygw", "go install github.com/versity/versitygw/cmd/versitygw@v1.8.0")
	addr := freeAddr(t)
	run(t, nil, program, "-a", key, "-s", secret, "-p", addr, "--quiet", "posix", dir)
	await(t, "http://"+addr)
	return &Server{Addr: addr, kind: "s3", dir: dir, Env: map[string]string{
		"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_EC2_METADATA_DISABLED": "true",
	}}
}

// StartGCS starts fake-gcs-server.
func StartGCS(t testing.TB) *Server {
	t.Helper()
	program := find(t, "fake-gcs-server", "go install github.com/fsouza/fake-gcs-server@v1.56.1")
	addr := freeAddr(t)
	host, port, _ := net.SplitHostPort(addr) // made by freeAddr
	run(t, nil, program, "-scheme", "http", "-host", host, "-port", port, "-backend", "memory", "-log-level", "error")
	await(t, "http://"+addr+"/storage/v1/b?project=p")
	res, err := http.Post("http://"+addr+"/storage/v1/b?project=p", "application/json", strings.NewReader(`{"name":"bucket"}`))
	done(t, res, err)
	return &Server{Addr: addr, kind: "gs"}
}

// StartAzure starts Azurite.
func StartAzure(t testing.TB) *Server {
	t.Helper()
	program := find(t, "azurite-blob", "npm install azurite@3.37.0")
	addr := freeAddr(t)
	host, port, _ := net.SplitHostPort(addr) // made by freeAddr
	run(t, []string{"AZURITE_ACCOUNTS=" + azureAccount + ":" + azureKey}, program, "--blobHost", host, "--blobPort", port,
		"--location", t.TempDir(), "--silent", "--skipApiVersionCheck", "--disableTelemetry")
	await(t, "http://"+addr)
	makeContainer(t, addr)
	return &Server{Addr: addr, kind: "azblob", Env: map[string]string{"AZURE_STORAGE_ACCOUNT": azureAccount, "AZURE_STORAGE_KEY": azureKey}}
}

// makeContainer signs the one request that makes the bucket, so that this package needs no SDK.
func makeContainer(t testing.TB, addr string) {
	t.Helper()
	path := "/" + azureAccount + "/bucket"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+addr+path+"?restype=container", nil)
	if err != nil {
		t.Fatal(err)
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	r.Header.Set("x-ms-date", date)
	r.Header.Set("x-ms-version", "2021-12-02")
	text := "PUT" + strings.Repeat("\n", 12) + "x-ms-date:" + date + "\nx-ms-version:2021-12-02\n/" + azureAccount + path + "\nrestype:container"
	key, _ := base64.StdEncoding.DecodeString(azureKey) // a constant above
	sign := hmac.New(sha256.New, key)
	_, _ = sign.Write([]byte(text))
	r.Header.Set("Authorization", "SharedKey "+azureAccount+":"+base64.StdEncoding.EncodeToString(sign.Sum(nil)))
	res, err := http.DefaultClient.Do(r)
	done(t, res, err)
}

// done fails the test unless the answer is a good one.
func done(t testing.TB, res *http.Response, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		t.Fatalf("make bucket: %s %s %v", res.Status, text, err)
	}
	_ = res.Body.Close() // read to its end
	http.DefaultClient.CloseIdleConnections()
}

// find looks for a program in PATH.
func find(t testing.TB, name, install string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing: %s", name, install)
		}
		t.Skipf("%s is missing: %s", name, install)
	}
	return path
}

// run starts a program that ends with the test.
func run(t testing.TB, env []string, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s said:\n%s", filepath.Base(program), text[max(0, len(text)-4000):])
		}
	})
}

// await polls until something answers.
func await(t testing.TB, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := http.DefaultClient.Do(r); err == nil {
			_ = res.Body.Close() // that there is an answer is all
			http.DefaultClient.CloseIdleConnections()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("nothing answers at %s", url)
		}
	}
}

// freeAddr is a loopback address nobody listens at now.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it was only asked for its port
	return fmt.Sprint(l.Addr())
}

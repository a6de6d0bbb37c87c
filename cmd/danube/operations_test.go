package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/integration/objects"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/drivers"
)

func operationsPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// TestOperationsPageURLsOpen: every URL of a store that the page shows is one that a broker takes. Opening makes no request.
func TestOperationsPageURLsOpen(t *testing.T) {
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account")
	t.Setenv("AZURE_STORAGE_KEY", "a2V5")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	folder := t.TempDir()
	found := map[string]int{}
	for _, url := range regexp.MustCompile("(file|s3|gs|azblob)://[^\\s`\"'}]+").FindAllString(operationsPage(t), -1) {
		scheme, _, _ := strings.Cut(url, "://")
		if strings.Contains(url, "…") {
			continue // the URL of an object, shortened
		}
		found[scheme]++
		url = strings.Replace(url, "/mnt/danube", folder, 1)
		s, err := cold.Open(t.Context(), cold.Config{URL: url, Drivers: drivers.Open})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		_ = s.Close()
	}
	for _, scheme := range []string{"file", "s3", "gs", "azblob"} {
		if found[scheme] == 0 {
			t.Errorf("no example of %s://: %v", scheme, found)
		}
	}
}

// TestObjectsOfRealServers: on the servers that the page starts, under the URLs that it shows, objects are verified and dumped and a
// rebuild looks at the bucket, with the exit codes of files.
func TestObjectsOfRealServers(t *testing.T) {
	for name, c := range map[string]struct {
		start func(testing.TB) *objects.Server
		addr  string // on the page
	}{
		"S3": {objects.StartS3, "127.0.0.1:17070"}, "GCS": {objects.StartGCS, "127.0.0.1:17071"}, "Azure": {objects.StartAzure, "127.0.0.1:17072"},
	} {
		t.Run(name, func(t *testing.T) {
			server := c.start(t)
			server.SetEnv(t)
			if shown := server.URL(c.addr); !strings.Contains(operationsPage(t), "`"+shown+"`") {
				t.Errorf("docs/operations.md does not show %s", shown)
			}
			l := newLost(t)
			url := server.URL(server.Addr)
			place, query, _ := strings.Cut(url, "?")
			var err error
			if l.store, err = cold.Open(t.Context(), cold.Config{URL: url + "&prefix=danube", Drivers: drivers.Open}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.store.Close() })
			l.export(0, 3)
			l.cut()
			for _, key := range l.listed() {
				object := place + "/" + key + "?" + query + "&prefix=danube/"
				if said, _ := offlineCommand(t, fail.Done, "segment", "verify", object); !strings.Contains(said, "no problems") || !strings.Contains(said, key) {
					t.Errorf("%s: %s", key, said)
				}
				if said, _ := offlineCommand(t, fail.Done, "segment", "dump", object, "-o", "json"); !strings.Contains(said, key) {
					t.Errorf("%s: %s", key, said)
				}
			}
			data, seg := l.segment(1, 2, false)
			hurt := bytes.Clone(data)
			hurt[seg.Bytes/2] ^= 1
			l.put("hurt.seg", hurt)
			if said, says := offlineCommand(t, fail.Failed, "segment", "verify", place+"/hurt.seg?"+query+"&prefix=danube/"); !strings.Contains(said, "CRC") || !strings.Contains(says, "/danube/hurt.seg: 1 problem") {
				t.Errorf("of a damaged object: %s%s", said, says)
			}
			if _, says := offlineCommand(t, fail.Failed, "segment", "dump", place+"/missing.seg?"+query); !strings.Contains(says, "missing.seg: not found") {
				t.Errorf("of a missing object: %s", says)
			}
			l.tell(3600e9)
			said, _ := offlineCommand(t, fail.Done, "cluster", "rebuild", "--from", url+"&prefix=danube/", "--data-dir", filepath.Join(t.TempDir(), "new"), "--dry-run")
			if !strings.Contains(said, "/shop/orders") || !strings.Contains(said, "would be made anew") || strings.Contains(said, "testsecret") {
				t.Errorf("a dry run says %s", said)
			}
		})
	}
}

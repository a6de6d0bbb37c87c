package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/bench"
	"github.com/danubemq/danube/cmd/danube/offline"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/cmd/danube/view"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// exampleTopic is a topic with everything in it.
func exampleTopic() protocol.TopicDescription {
	return protocol.TopicDescription{
		Topic: "/default/orders", ID: "000102030405060708090a0b0c0d0e0f", Reliable: true, Durability: "local", RetentionMS: 3_600_000, RetentionBytes: 1 << 30,
		Partitions: []protocol.PartitionDescription{{
			Partition: 0, Owner: "n1", Epoch: 3, State: "open", LogStart: 10, NextOffset: 1010, CommittedEnd: 1010, ColdEnd: 10, Protected: 10, Ceiling: 5000,
			Bytes: 123456, Segments: 2, Producers: 1, Warm: &protocol.WarmDescription{Generation: 1, Whole: true},
			Ranges: []protocol.RangeDescription{
				{Epoch: 1, Start: 10, End: 500, Status: "SEALED", Stores: []string{"aa"}},
				{Epoch: 2, Start: 500, End: 600, Status: "LOST", Stores: []string{"aa"}, Detail: "wal/x.seg at 4096: CRC"},
				{Epoch: 3, Start: 600, End: 1010, Status: "OPEN", Stores: []string{"aa"}},
			},
			Superseded: []protocol.OffsetSpan{{Start: 490, End: 500}},
		}, {Partition: 1, Owner: "n1", Epoch: 1, State: "failed", Reason: "disk"}},
		Subscriptions: []protocol.SubDescription{exampleSubscription()},
	}
}

func exampleSubscription() protocol.SubDescription {
	return protocol.SubDescription{
		Name: "billing", Type: "shared", Options: protocol.SubOptions{MaxUnacked: 500, AckTimeoutMS: 5000},
		Partitions: []protocol.SubPartition{{
			Partition: 0, Cursor: 700, Lag: 310, InFlight: 10, Redeliver: 1, Ranges: 2, Skipped: 100, Generation: 4, State: "delivering",
			Consumers: []protocol.SubConsumer{{Name: "c1", Address: "127.0.0.1:5000", Credit: 990, InFlight: 10}},
		}},
	}
}

func exampleVerify() protocol.VerifyReport {
	return protocol.VerifyReport{Partitions: []protocol.VerifyPartition{
		{Partition: 0, From: 0, To: 100, Messages: 99, Bytes: 9999, Notes: []protocol.VerifyNote{{From: 90, To: 95, What: "lost, and given up"}}, Findings: []protocol.VerifyFinding{
			{From: 7, To: 8, Tier: "hot", File: "wal/a/0/x.seg", At: 512, What: "CRC of the body"}}},
		{Partition: 1, From: 0, To: 0},
	}}
}

func exampleAudit() protocol.AuditReport {
	return protocol.AuditReport{
		Store: "s3://bucket?prefix=danube/", Tallies: []protocol.AuditTally{{Verdict: "catalogued", Sound: true, Objects: 1200, Bytes: 3 << 30}, {Verdict: "missing", Objects: 1, Bytes: 4096}},
		Findings: []protocol.AuditFinding{{Key: "topics/a/0/x.seg", Verdict: "missing", Want: 4096}}, More: 2, Awaited: true,
	}
}

func exampleMessages() []client.Message {
	return []client.Message{{
		Topic: "/default/orders", Partition: 1, Offset: 42, Key: []byte("k\x01"), Payload: []byte("grüß\t\"dich\"\n<&>\u2028"),
		Properties: []batch.Property{{Name: "a", Value: "1"}, {Name: "b", Value: "\\"}}, PublishTime: noon(), AppendTime: noon().Add(1500 * time.Microsecond), Deliveries: 2,
	}, {
		Topic: "/default/orders", Offset: 43, Key: []byte{0xff}, Payload: []byte{0, 0xfe, 0xff}, PublishTime: noon(), AppendTime: noon(),
	}}
}

func exampleStatus() protocol.Status {
	return protocol.Status{Cluster: "danube", ClusterID: "0f0e", Broker: "n1", Release: "1.0.0", Leader: "n1", Ready: true, Topics: 12,
		Durability: "durability local: one copy, on the disk of the broker that owns the topic", History: 1, Orphaned: 2, Unplaced: 1, Moving: 1,
		Orphans:  []protocol.OrphanRange{{Topic: "/default/orders", Start: 5, End: 1000, Brokers: []string{"n3"}}, {Topic: "/default/orders", Partition: 1, Start: 161, End: 4294968296}},
		Moves:    []protocol.MovingStatus{{Topic: "/default/orders", Partition: 2, From: "n1", To: "n2"}},
		Degraded: []string{"disk is 91 % full"}, Brokers: []protocol.BrokerStatus{
			{Name: "n1", Store: "aa", Address: "127.0.0.11:6650", State: "active", Voter: true, Incarnation: 7, Leader: true, Peer: "127.0.0.11:7650", HTTP: "127.0.0.11:8650", Gossip: "alive", Seen: "answers", Partitions: 7, OnlyCopies: 9, Applied: 5012},
			{Name: "n2", Store: "bb", Address: "127.0.0.12:6650", State: "active", Voter: true, Incarnation: 3, Peer: "127.0.0.12:7650", HTTP: "127.0.0.12:8650", Gossip: "alive", Seen: "answers", Partitions: 5, OnlyCopies: 5, Applied: 5010},
			{Name: "n3", Store: "cc", Address: "127.0.0.13:6650", State: "lost", Voter: true, Incarnation: 4, Peer: "127.0.0.13:7650", HTTP: "127.0.0.13:8650", Gossip: "alive", Seen: "silent", OnlyCopies: 1, Reason: "it does not answer"},
		}}
}

func exampleSegment() *offline.Segment {
	return &offline.Segment{
		File: "x.seg", Size: 8192, Sealed: true, Facts: offline.Facts{First: 5, End: 9, FirstTime: "2026-01-31T12:00:00.000Z", LastTime: "2026-01-31T12:00:01.000Z", Batches: 2, Messages: 4, Marks: 1, DataEnd: 4096, CRC: "deadbeef"},
		Header:   &offline.Header{Topic: "/default/orders", TopicID: "0001", Partition: 2, Base: 5, FirstEpoch: 1, Epoch: 1, Cluster: "0f0e", Store: "aa", Created: "2026-01-31T12:00:00.000Z"},
		Problems: []offline.Problem{{File: "x.seg", At: 100, From: 6, To: 7, What: "body CRC"}},
	}
}

func exampleFromBucket() offline.Rebuilt {
	r := exampleRebuilt()
	r.From, r.Manifest, r.Subscriptions, r.DryRun, r.Kept = "s3://bucket?prefix=danube/", "manifests/00000-00000000000000004711", 2, true, ""
	r.Partitions[0].Files, r.Partitions[0].Objects = 0, 5
	key := "topics/00010000000000000000000000000000/0/00000000000000000200-00000000000000000300-0000000000000001-7-000000000000002a.seg"
	r.LeftOut = []offline.LeftOut{{Object: key, TopicID: "0001", From: 200, To: 300, Why: "never committed"}, {Object: key, TopicID: "0001", From: 100, To: 200, Why: "held by others"}}
	r.Cut = []offline.LeftOut{{Object: key, TopicID: "0001", From: 350, To: 360, Why: "overlaps with another object"}}
	r.Notes = []string{"topics, settings and subscriptions are as of 2026-01-31T12:00:00.000Z (manifests/00000-00000000000000004711): what was changed or acknowledged after that"}
	return r
}

func exampleRebuilt() offline.Rebuilt {
	return offline.Rebuilt{Directory: "/var/lib/danube", ClusterID: "0f0e", History: 1, Kept: "/var/lib/danube/meta.lost-1", Partitions: []offline.RebuiltPartition{
		{Topic: "/default/orders", TopicID: "0001", First: 10, End: 600, GoesOnAt: 4294967896, Files: 2, Bytes: 123456, Missing: []offline.Missing{{From: 100, To: 200}}},
	}, Problems: []offline.Problem{{File: "wal/0001/0/x.seg", What: "no segment magic"}}, Notes: []string{
		"subscriptions and what they acknowledged: there are none; `danube subscription create` makes them",
		"retention: nothing is deleted until `danube topic set` says so again",
		"durability: local; limits of topics and namespaces: none",
		"partitions behind the last that holds something, topics that never held a message, and topics that are not reliable",
		"what lies on other brokers only",
	}}
}

// TestGoldenJSON holds every -o json that is one document. A field may be added, never renamed.
func TestGoldenJSON(t *testing.T) {
	topic, sub, verify, status := exampleTopic(), exampleSubscription(), exampleVerify(), exampleStatus()
	for name, v := range map[string]any{
		"topic-create":          createdTopic{"/default/orders", "0001", true, true, protocol.TopicConfig{Partitions: 3, Durability: "local", RetentionMS: 1000}},
		"topic-describe":        &topic,
		"topic-describe-empty":  &protocol.TopicDescription{Topic: "/default/x", Partitions: []protocol.PartitionDescription{{}}},
		"topic-list":            protocol.TopicList{Topics: []protocol.TopicSummary{{Topic: "/default/orders", ID: "0001", Reliable: true, Durability: "local", Partitions: 3, Subscriptions: 1, RetentionMS: 1000}}},
		"topic-list-empty":      protocol.TopicList{},
		"topic-verify":          &verify,
		"cluster-audit":         exampleAudit(),
		"topic-truncate":        &protocol.Truncated{Was: 0, LogStart: 500, Unacked: 20},
		"subscription-list":     &protocol.SubList{Subscriptions: []protocol.SubDescription{sub}},
		"subscription-describe": &sub,
		"topic-move":            exampleMoved(),
		"cluster-status":        &status,
		"broker-list":           &protocol.BrokerList{Brokers: status.Brokers},
		"broker-list-empty":     &protocol.BrokerList{},
		"broker-describe":       exampleBroker(),
		"broker-done":           brokerDone{"n3", "drained"},
		"cluster-recover":       recovered{"/var/lib/danube", "aa", "10.0.0.1:7650"},
		"cluster-rebuild":       exampleRebuilt(),
		"cluster-rebuild-from":  exampleFromBucket(),
		"cluster-snapshot":      snapshotDone{"danube.snapshot", 123456},
		"cluster-restore":       restoreDone{"danube.snapshot", 123456, []string{"/default/orders"}, 1},
		"cluster-restore-whole": restoreDone{File: "danube.snapshot", Bytes: 123456},
		"segment-verify":        exampleSegment(),
		"wal-verify":            offline.Log{Directory: "d", Files: 1, Bytes: 8192, Messages: 4, Partitions: []offline.Partition{{Topic: "/default/orders", TopicID: "0001", Files: 1, Bytes: 8192, Messages: 4, First: 5, End: 9}}},
		"config-check":          checkReport{File: "danube.yaml", Problems: []string{"danube.yaml:1: unknown key x"}},
		"config-show":           shownSettings{[]settings.Shown{{Key: "data_dir", Value: "/d", From: "--data-dir"}}},
		"version":               versionReport{"1.0.0", "abc", "go1.26", "linux/amd64", formatVersion{1, 1, 1}},
		"bench":                 bench.Result{Messages: 1_000_000, Bytes: 1 << 30, Seconds: 1.5, Rate: 666666.7, P50: 100, P99: 900.5, P999: 2000, Max: 31000, Errors: 0},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := render.JSON(&b, v); err != nil {
				t.Fatal(err)
			}
			if !json.Valid(b.Bytes()) || bytes.Contains(b.Bytes(), []byte("null")) {
				t.Errorf("not valid, or null for a list:\n%s", b.String())
			}
			golden(t, name+".json", b.Bytes())
		})
	}
}

// TestGoldenPeek holds the output of peek with -o json, messages as consume prints them.
func TestGoldenPeek(t *testing.T) {
	var peek bytes.Buffer
	if err := printPeek(&peek, exampleMessages(), "json"); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(peek.Bytes()) {
		t.Errorf("peek prints no JSON:\n%s", peek.String())
	}
	golden(t, "topic-peek.json", peek.Bytes())
}

// TestGoldenTables holds what a person sees.
func TestGoldenTables(t *testing.T) {
	for name, print := range map[string]func(*bytes.Buffer) error{
		"topic-describe":        func(b *bytes.Buffer) error { return view.Topic(b, exampleTopic(), false) },
		"topic-describe-all":    func(b *bytes.Buffer) error { return view.Topic(b, exampleTopic(), true) },
		"subscription-describe": func(b *bytes.Buffer) error { return view.Subscription(b, "/default/orders", exampleSubscription()) },
		"topic-verify":          func(b *bytes.Buffer) error { return view.Verify(b, exampleVerify()) },
		"topic-peek":            func(b *bytes.Buffer) error { return printPeek(b, exampleMessages(), "text") },
		"cluster-audit":         func(b *bytes.Buffer) error { return view.Audit(b, exampleAudit()) },
		"cluster-status":        func(b *bytes.Buffer) error { return view.Status(b, exampleStatus()) },
		"broker-list":           func(b *bytes.Buffer) error { return view.Brokers(b, exampleStatus().Brokers) },
		"broker-describe":       func(b *bytes.Buffer) error { return view.Broker(b, exampleBroker(), false) },
		"broker-describe-all":   func(b *bytes.Buffer) error { return view.Broker(b, exampleBroker(), true) },
		"cluster-rebuild":       func(b *bytes.Buffer) error { return exampleRebuilt().Print(b) },
		"cluster-rebuild-from":  func(b *bytes.Buffer) error { return exampleFromBucket().Print(b) },
		"segment-verify":        func(b *bytes.Buffer) error { return exampleSegment().Print(b) },
		"bench": func(b *bytes.Buffer) error {
			return benchTable(b, bench.Result{Messages: 1_000_000, Bytes: 1 << 30, Seconds: 1.5, Rate: 666666.7, P50: 100, P99: 900.5, P999: 2000, Max: 31000, Errors: 0}, "of a test")
		},
	} {
		var b bytes.Buffer
		if err := print(&b); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".txt", b.Bytes())
	}
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"

	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// settings are what a comparison is asked for.
type settings struct {
	danube, natsServer, ceiling string // programs; "" leaves their rows out
	nats, natsAlways            string // URLs of running servers, instead of started ones
	work                        string // folder for everyone's data
	kind                        string // of Danube's log file: grow or laid
	pairs                       int
	bytes                       int64 // to write in one run
	seconds                     time.Duration
	limit                       time.Duration
	only                        *regexp.Regexp
	markdown                    string
}

func parseSettings(args []string) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.StringVar(&s.danube, "danube", "", "the danube program")
	flags.StringVar(&s.natsServer, "nats-server", "", "the nats-server program")
	flags.StringVar(&s.ceiling, "ceiling", "", "the ceiling program")
	flags.StringVar(&s.nats, "nats", "", "URL of a running NATS server with JetStream, instead of starting one")
	flags.StringVar(&s.natsAlways, "nats-always", "", "URL of one with sync_interval: always")
	flags.StringVar(&s.work, "work", "", "folder for the data of all sides (a new temporary one)")
	flags.StringVar(&s.kind, "kind", "grow", "kind of file that Danube's log is, for the stick and the plain writes: grow or laid")
	flags.IntVar(&s.pairs, "pairs", 7, "pairs of runs in a row")
	size := flags.String("bytes", "2GiB", "what each run writes")
	flags.DurationVar(&s.seconds, "seconds", 15*time.Second, "length of runs that are bounded by time")
	flags.DurationVar(&s.limit, "limit", 4*time.Hour, "end by then, whatever is measured")
	quick := flags.Bool("quick", false, "one pair of short runs: shows that it works, proves nothing")
	only := flags.String("only", "", "only rows whose name matches")
	flags.StringVar(&s.markdown, "markdown", "", "also write the report to this file")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	var err error
	if s.bytes, err = parseBytes(*size); err != nil {
		return s, err
	}
	if s.only, err = regexp.Compile(*only); err != nil {
		return s, fmt.Errorf("read -only: %w", err)
	}
	if *quick {
		s.pairs, s.bytes, s.seconds = 1, 32<<20, 2*time.Second
	}
	if s.kind != "grow" && s.kind != "laid" {
		return s, fmt.Errorf("-kind %s: is neither grow nor laid", s.kind)
	}
	return s, nil
}

func parseBytes(text string) (int64, error) {
	m := regexp.MustCompile(`^(\d+)(KiB|MiB|GiB)?$`).FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("size %q: write it like 512MiB", text)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	return n << map[string]int{"": 0, "KiB": 10, "MiB": 20, "GiB": 30}[m[2]], err
}

// bench is a comparison on its way: the servers and how to reach them.
type bench struct {
	settings
	self       string
	broker     *server // nil while there is no danube program
	brokerAddr string
	servers    []*server
	runs       int // so far, for names that were never used
}

// open starts the servers that are not given. What cannot be started is said and its rows are left out.
func openBench(ctx context.Context, s settings) (*bench, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	b := &bench{settings: s, self: self}
	if b.work == "" {
		if b.work, err = os.MkdirTemp("", "danube-bench-"); err != nil {
			return nil, fmt.Errorf("make work folder: %w", err)
		}
	}
	if err := b.startServers(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) startServers(ctx context.Context) error {
	var err error
	if b.nats == "" && b.natsServer != "" {
		if b.nats, err = b.startNATS(ctx, "as-it-comes", ""); err != nil {
			return err
		}
		if b.natsAlways, err = b.startNATS(ctx, "always", "sync_interval: always"); err != nil {
			return err
		}
	}
	if b.danube == "" {
		return nil
	}
	var ready string
	b.broker, ready, err = startServer(ctx, "danube", "ready ", b.danube, "standalone", "--data-dir", filepath.Join(b.work, "danube"),
		"--host", "127.0.0.1", "--client-port", "0", "--http-port", "0")
	if err != nil {
		return err
	}
	for _, field := range strings.Fields(ready) {
		if address, ok := strings.CutPrefix(field, "clients="); ok {
			b.brokerAddr = address
		}
	}
	b.servers = append(b.servers, b.broker)
	return nil
}

func (b *bench) startNATS(ctx context.Context, name, setting string) (string, error) {
	port := freePort()
	config := filepath.Join(b.work, name+".conf")
	text := fmt.Sprintf("listen: 127.0.0.1:%s\njetstream {\n  store_dir: %q\n  %s\n}\n", port, filepath.Join(b.work, "nats-"+name), setting)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("write nats config: %w", err)
	}
	s, _, err := startServer(ctx, "nats-server "+name, "Server is ready", b.natsServer, "-c", config)
	if err != nil {
		return "", err
	}
	b.servers = append(b.servers, s)
	return "nats://127.0.0.1:" + port, nil
}

// close ends what open started and removes the data.
func (b *bench) close() error {
	var err error
	for _, s := range b.servers {
		err = errors.Join(err, s.stop())
	}
	return errors.Join(err, os.RemoveAll(b.work))
}

// freePort finds a port below the range that outgoing connections take.
func freePort() string {
	for port := 21000 + os.Getpid()%9000; port < 32000; port++ {
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			return strconv.Itoa(port)
		}
	}
	return "0"
}

// fresh is a name that no run had before.
func (b *bench) fresh(what string) string {
	b.runs++
	return fmt.Sprintf("%s-%d-%d", what, os.Getpid(), b.runs)
}

// ours runs `danube bench …` on a fresh topic and deletes the topic.
func (b *bench) ours(prepare []string, args ...string) side {
	return func(ctx context.Context) (result, error) {
		if b.broker == nil {
			return result{}, errNoDanube
		}
		topic := "/default/" + b.fresh("bench")
		env := []string{"DANUBE_BROKER=" + b.brokerAddr}
		run := func(words ...string) error {
			_, err := execute(ctx, env, append([]string{b.danube}, words...)...)
			return err
		}
		if len(prepare) > 0 {
			if err := run(withTopic(prepare, topic)...); err != nil {
				return result{}, err
			}
		}
		r, err := measure(ctx, env, append(append([]string{b.danube, "bench"}, withTopic(args, topic)...), "-o", "json")...)
		if del := run("topic", "delete", topic, "--yes"); del != nil && err == nil && args[0] == "produce" && len(prepare) == 0 {
			return r, nil // bench produce with --topics makes names of its own
		}
		return r, err
	}
}

// withTopic puts the topic in the place of TOPIC.
func withTopic(args []string, topic string) []string {
	out := append([]string(nil), args...)
	for i := range out {
		if out[i] == "TOPIC" {
			out[i] = topic
		}
	}
	return out
}

// peer runs a driver of NATS on a fresh stream and deletes the stream. Works before the last prepare it.
func (b *bench) peer(url string, size int, works ...[]string) side {
	return func(ctx context.Context) (result, error) {
		if url == "" {
			return result{}, errNoPeer
		}
		common := []string{"--url", url, "--stream", b.fresh("bench"), "--size", strconv.Itoa(size)}
		drive := func(words []string) (result, error) {
			argv := append([]string{b.self, "drive", words[0]}, common...)
			return measure(ctx, nil, append(argv, words[1:]...)...)
		}
		var r result
		var err error
		for _, words := range works {
			if r, err = drive(words); err != nil {
				break
			}
		}
		_, gone := drive([]string{"delete"})
		return r, errors.Join(err, gone)
	}
}

// stick runs the ceiling's server for one measurement.
func (b *bench) stick(args ...string) side {
	return func(ctx context.Context) (result, error) {
		if b.ceiling == "" {
			return result{}, errNoPeer
		}
		address := net.JoinHostPort("127.0.0.1", freePort())
		laid := int64(0)
		if b.kind == "laid" {
			laid = laidBytes
		}
		file := filepath.Join(b.work, "ceiling.log")
		s, _, err := startServer(ctx, "ceiling", "ready ", b.ceiling, "serve", "--address", address, "--file", file, "--laid", strconv.FormatInt(laid, 10))
		if err != nil {
			return result{}, err
		}
		r, err := measure(ctx, nil, append([]string{b.ceiling, args[0], "--address", address}, args[1:]...)...)
		return r, errors.Join(err, s.stop(), os.Remove(file))
	}
}

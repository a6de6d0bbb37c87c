package broker

import (
	"fmt"

	"github.com/danubemq/danube/broker/web"
	"github.com/danubemq/danube/broker/words"
)

// openHTTP opens the HTTP port, so that health can be asked from the start on.
func (b *Broker) openHTTP() error {
	if b.cfg.Listen.HTTP == "" {
		return nil
	}
	ln, err := b.cfg.Listen.Open("tcp", b.cfg.Listen.HTTP)
	if err != nil {
		return &ListenError{Port: "HTTP", Address: b.cfg.Listen.HTTP, Err: err}
	}
	b.http = web.Open(web.Config{
		Listener: ln, Metrics: b.cfg.Metrics, Pprof: b.cfg.Pprof, Call: b.call, Coded: b.wireError,
		Degraded: b.degradedNow, NotReady: b.notReady, Log: b.log,
		Failed: func() bool { return b.ready.Load() && b.store.Err() != nil },
	})
	return nil
}

// degradedNow is degraded once the broker has started.
func (b *Broker) degradedNow() []string {
	if !b.ready.Load() {
		return []string{}
	}
	view := b.meta.View()
	return append(b.degraded(), words.Take(view).Reasons(view)...)
}

// diskWarn is the used part of the disk from which health says degraded.
const diskWarn = 0.8

// degraded says in words what is not as it should be.
func (b *Broker) degraded() []string {
	out := []string{}
	if err := b.store.Err(); err != nil {
		out = append(out, "storage failed: "+err.Error())
	}
	if !b.leased() {
		out = append(out, "no lease: this broker has lost touch with the cluster's leader and takes no messages")
	}
	if b.store.Full() != nil {
		out = append(out, "storage full: no message is taken until space is free again")
	}
	if w := b.diskWarning(); w != "" {
		out = append(out, w)
	}
	if b.depot != nil {
		if d := b.depot.Degraded(); d != "" {
			out = append(out, d)
		}
	}
	damaged := 0
	for _, p := range b.reliable() {
		if len(p.Past.Damage()) > 0 {
			damaged++
		}
	}
	if damaged > 0 {
		out = append(out, words.Counted(damaged, "partition has", "partitions have")+" damaged messages: see topic describe")
	}
	return out
}

// diskWarning says how full the disk is, from 80 % on, and when it will be full at the present rate.
func (b *Broker) diskWarning() string {
	space, err := b.cfg.FS.Free(b.cfg.DataDir)
	if err != nil || space.Total == 0 {
		return ""
	}
	used := 1 - float64(space.Free)/float64(space.Total)
	if used < diskWarn {
		return ""
	}
	text := fmt.Sprintf("disk %.0f %% full, %d MiB left", used*100, space.Free>>20)
	if rate := b.metrics.diskRate(b.cfg.Now(), b.metrics.appended.Load()); rate > 0 {
		text += words.Forecast(float64(space.Free) / rate)
	}
	return text
}

// notReady says why the broker is not ready, "" when it is.
func (b *Broker) notReady() string {
	switch {
	case !b.ready.Load():
		if c := b.peersOpen.Load(); c != nil {
			if phase := c.Status().Phase; phase != "" {
				return "starting: " + phase
			}
		}
		return "starting: logs are being recovered"
	case b.meta == nil || !b.meta.Ready():
		return "no leader is known, or no commit was seen yet"
	case b.store.Err() != nil:
		return "storage failed: " + b.store.Err().Error()
	}
	return ""
}

package history

import "time"

func ownerPlays() map[string]play {
	return map[string]play{
		"epochs that grow": {"", "", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			s.serve("served", m...).Epochs = []Epoch{{1, 0, false}, {1, 1, false}, {2, 2, true}}
		}},
		"I10 an older epoch behind a newer": {"I10", "epoch 3 begins at 2 behind epoch 4 at 1", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			s.serve("served", m...).Epochs = []Epoch{{1, 0, false}, {4, 1, false}, {3, 2, true}}
		}},
		"I10 two are open": {"I10", "epoch 1 is open and epoch 2 follows it", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			s.serve("served", m...).Epochs = []Epoch{{1, 0, true}, {2, 2, true}}
		}},
		"L3 a fault of another stops a partition": {"L3", `/t:0 acknowledged nothing for 6.001s`, func(s *scene) {
			p := s.Producer("/t")
			m := s.send(p, 1, 0)
			f := s.Fault(Pause, "n2")
			f.Spared("/t", 0)
			seq, payload := p.Begin(64)
			s.now += 6 * time.Second
			p.Acked(seq, 0, 1)
			f.Healed(true)
			s.serve("served", m[0], sent{payload, 1})
		}},
		"a fault of the owner stops it": {"", "", func(s *scene) {
			p := s.Producer("/t")
			f := s.Fault(Pause, "n1")
			seq, payload := p.Begin(64)
			s.now += 6 * time.Second
			p.Acked(seq, 0, 0)
			f.Healed(true)
			s.serve("served", sent{payload, 0})
		}},
		"nobody wanted anything of a partition": {"", "", func(s *scene) {
			p := s.Producer("/t")
			m := s.send(p, 1, 0)
			f := s.Fault(Pause, "n2")
			f.Spared("/t", 0)
			s.now += 6 * time.Second
			f.Healed(true)
			s.serve("served", append(m, s.send(p, 1, 1)...)...)
		}},
	}
}

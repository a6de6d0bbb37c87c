package protocol

// Each header's fields in the order they are written, then its two directions.
// AppendTo appends the header to dst. Decode overwrites h with what b holds; b
// is not kept, and its error is an [*Error] with CodeBadFrame. The msgpack tags
// of the types name the same keys.

func (h *Produce) walk(c *codec) {
	unsigned(c, "h", &h.Handle)
	unsigned(c, "e", &h.Epoch)
}

func (h *ProduceOK) walk(c *codec) {
	unsigned(c, "o", &h.Base)
	signed(c, "t", &h.AppendTime)
	c.bool("d", &h.Duplicate)
	unsigned(c, "l", &h.Level)
}

func (h *Credit) walk(c *codec) {
	unsigned(c, "h", &h.Handle)
	unsigned(c, "m", &h.Messages)
}

func (h *Deliver) walk(c *codec) {
	unsigned(c, "h", &h.Handle)
	unsigned(c, "g", &h.Generation)
	unsigned(c, "f", &h.First)
	unsigned(c, "n", &h.Count)
	unsigned(c, "a", &h.Attempt)
	c.bool("l", &h.Late)
}

func (h *Ranges) walk(c *codec) {
	unsigned(c, "h", &h.Handle)
	unsigned(c, "g", &h.Generation)
	c.ranges("r", &h.Ranges)
}

func (h *Ack) walk(c *codec) {
	h.Ranges.walk(c)
	c.bool("u", &h.UpTo)
	c.bool("c", &h.Confirm)
}

func (h *AckOK) walk(c *codec) { unsigned(c, "s", &h.Stale) }

func (h *Nack) walk(c *codec) {
	h.Ranges.walk(c)
	signed(c, "d", &h.DelayMS)
	c.text("w", &h.Reason)
}

func (h *Fetch) walk(c *codec) {
	c.text("t", &h.Topic)
	signed(c, "p", &h.Partition)
	unsigned(c, "e", &h.Epoch)
	c.position("f", &h.From)
	signed(c, "mb", &h.MaxBytes)
	signed(c, "w", &h.WaitMS)
}

func (h *FetchOK) walk(c *codec) {
	unsigned(c, "e", &h.Epoch)
	unsigned(c, "f", &h.From)
	unsigned(c, "t", &h.To)
	unsigned(c, "n", &h.Next)
	unsigned(c, "ls", &h.LogStart)
	unsigned(c, "c", &h.Committed)
	c.text("g", &h.GapStatus)
}

func (h *Hello) walk(c *codec) {
	unsigned(c, "m", &h.Cookie)
	unsigned(c, "lo", &h.MinVersion)
	unsigned(c, "hi", &h.MaxVersion)
	c.text("c", &h.Client)
	c.text("a", &h.Auth)
	c.binary("s", &h.Secret)
	c.strings("f", &h.Features)
}

func (h *HelloOK) walk(c *codec) {
	unsigned(c, "v", &h.Version)
	c.text("b", &h.Broker)
	c.text("c", &h.Cluster)
	c.text("r", &h.Release)
	signed(c, "mf", &h.MaxFrame)
	signed(c, "mm", &h.MaxMessage)
	signed(c, "mb", &h.MaxBatch)
	signed(c, "w", &h.Window)
	signed(c, "hb", &h.HeartbeatMS)
	c.strings("f", &h.Features)
}

func (h *Lookup) walk(c *codec) {
	c.text("t", &h.Topic)
	switch {
	case c.write:
		if h.Create != nil {
			c.putKey("c")
			in := c.inner()
			h.Create.walk(&in)
			c.outer(&in)
		}
	case c.match("c"):
		h.Create = new(TopicConfig)
		in := c.inner()
		for in.more() {
			h.Create.walk(&in)
		}
		c.outer(&in)
		c.next()
	}
}

func (h *TopicConfig) walk(c *codec) {
	signed(c, "p", &h.Partitions)
	c.bool("nr", &h.NonReliable)
	c.text("d", &h.Durability)
	signed(c, "rt", &h.RetentionMS)
	signed(c, "rb", &h.RetentionBytes)
	c.bool("ra", &h.RetentionAcked)
}

func (h *LookupOK) walk(c *codec) {
	c.binary("id", &h.ID)
	c.text("n", &h.Name)
	c.bool("r", &h.Reliable)
	c.text("d", &h.Durability)
	c.bool("c", &h.Created)
	switch {
	case c.write:
		if len(h.Partitions) > 0 {
			c.putKey("p")
			c.b = appendLength(c.b, len(h.Partitions))
			for i := range h.Partitions {
				in := c.inner()
				h.Partitions[i].walk(&in)
				c.outer(&in)
			}
		}
	case c.match("p"):
		h.Partitions = nil
		for n := c.length(1); n > 0 && !c.bad; n-- {
			var p PartitionOwner
			in := c.inner()
			for in.more() {
				p.walk(&in)
			}
			c.outer(&in)
			h.Partitions = append(h.Partitions, p)
		}
		c.next()
	}
}

func (h *PartitionOwner) walk(c *codec) {
	c.text("b", &h.Broker)
	c.text("a", &h.Address)
	unsigned(c, "e", &h.Epoch)
}

func (h *OpenProducer) walk(c *codec) {
	c.text("t", &h.Topic)
	signed(c, "p", &h.Partition)
	unsigned(c, "e", &h.Epoch)
	c.text("n", &h.Name)
	unsigned(c, "id", &h.Producer)
	unsigned(c, "s", &h.Session)
	unsigned(c, "l", &h.Lowest)
	c.bool("x", &h.Exclusive)
}

func (h *OpenProducerOK) walk(c *codec) {
	unsigned(c, "h", &h.Handle)
	unsigned(c, "e", &h.Epoch)
	c.bool("st", &h.Stored)
	unsigned(c, "l", &h.Last)
}

func (h *Handle) walk(c *codec) { unsigned(c, "h", &h.Handle) }

func (h *Subscribe) walk(c *codec) {
	c.text("t", &h.Topic)
	signed(c, "p", &h.Partition)
	unsigned(c, "e", &h.Epoch)
	c.text("s", &h.Subscription)
	c.text("c", &h.Consumer)
	unsigned(c, "ty", &h.Type)
	c.position("st", &h.Start)
	c.bool("x", &h.Existing)
	signed(c, "pr", &h.Priority)
	c.strings("f", &h.Filters)
	unsigned(c, "cr", &h.Credit)
	c.options("op", &h.Options)
}

func (h *SubOptions) walk(c *codec) {
	signed(c, "mu", &h.MaxUnacked)
	signed(c, "at", &h.AckTimeoutMS)
	signed(c, "mr", &h.MaxRedeliver)
	signed(c, "b", &h.BackoffMS)
	signed(c, "bc", &h.BackoffCapMS)
	c.bool("bf", &h.BackoffFixed)
	c.bool("nd", &h.NoDurableAcks)
}

func (h *SubscribeOK) walk(c *codec) {
	unsigned(c, "h", &h.Handle)
	unsigned(c, "e", &h.Epoch)
	c.bool("c", &h.Created)
	unsigned(c, "ty", &h.Type)
	unsigned(c, "cu", &h.Cursor)
	unsigned(c, "g", &h.Generation)
	signed(c, "mu", &h.MaxUnacked)
}

func (h *GapNotice) walk(c *codec) {
	unsigned(c, "h", &h.Handle)
	unsigned(c, "f", &h.From)
	unsigned(c, "t", &h.To)
	c.text("s", &h.Status)
}

func (h *Seek) walk(c *codec) {
	unsigned(c, "h", &h.Handle)
	c.position("p", &h.To)
}

func (h *SeekOK) walk(c *codec) {
	unsigned(c, "cu", &h.Cursor)
	unsigned(c, "g", &h.Generation)
}

func (h *Detached) walk(c *codec) {
	unsigned(c, "h", &h.Handle)
	switch {
	case c.write:
		c.putKey("e")
		in := c.inner()
		h.Err.walk(&in)
		c.outer(&in)
	case c.match("e"):
		h.Err = Error{}
		in := c.inner()
		for in.more() {
			h.Err.walk(&in)
		}
		c.outer(&in)
		c.next()
	}
}

func (h *Admin) walk(c *codec) { c.text("op", &h.Op) }

func (e *Error) walk(c *codec) {
	unsigned(c, "c", &e.Code)
	c.text("m", &e.Text)
	c.text("h", &e.Hint)
	c.text("b", &e.Broker)
	c.text("a", &e.Address)
	unsigned(c, "e", &e.Epoch)
	unsigned(c, "w", &e.Want)
	c.text("r", &e.Request)
}

func (p *Position) walk(c *codec) {
	unsigned(c, "k", &p.Kind)
	unsigned(c, "o", &p.Offset)
	signed(c, "t", &p.Time)
}

func (c *codec) position(key string, p *Position) {
	switch {
	case c.write:
		if *p != (Position{}) {
			c.putKey(key)
			in := c.inner()
			p.walk(&in)
			c.outer(&in)
		}
	case c.match(key):
		*p = Position{}
		in := c.inner()
		for in.more() {
			p.walk(&in)
		}
		c.outer(&in)
		c.next()
	}
}

func (c *codec) options(key string, o *SubOptions) {
	switch {
	case c.write:
		if *o != (SubOptions{}) {
			c.putKey(key)
			in := c.inner()
			o.walk(&in)
			c.outer(&in)
		}
	case c.match(key):
		*o = SubOptions{}
		in := c.inner()
		for in.more() {
			o.walk(&in)
		}
		c.outer(&in)
		c.next()
	}
}

package protocol

// Every header's AppendTo and Decode: the same few lines over its own walk.
// They are written out because a call through an interface would move each
// header to the heap.

// AppendTo appends the header to dst.
func (h *Produce) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *Produce) Decode(b []byte) error {
	*h = Produce{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("PRODUCE")
}

// AppendTo appends the header to dst.
func (h *ProduceOK) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *ProduceOK) Decode(b []byte) error {
	*h = ProduceOK{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("PRODUCE_OK")
}

// AppendTo appends the header to dst.
func (h *Credit) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *Credit) Decode(b []byte) error {
	*h = Credit{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("CREDIT")
}

// AppendTo appends the header to dst.
func (h *Deliver) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *Deliver) Decode(b []byte) error {
	*h = Deliver{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("DELIVER")
}

// AppendTo appends the header to dst.
func (h *AckOK) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *AckOK) Decode(b []byte) error {
	*h = AckOK{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("ACK_OK")
}

// AppendTo appends the header to dst.
func (h *Fetch) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *Fetch) Decode(b []byte) error {
	spare := h.Topic
	*h = Fetch{}
	c := readMap(b)
	c.spare = spare
	for c.more() {
		h.walk(&c)
	}
	return c.done("FETCH")
}

// AppendTo appends the header to dst.
func (h *FetchOK) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *FetchOK) Decode(b []byte) error {
	spare := h.GapStatus
	*h = FetchOK{}
	c := readMap(b)
	c.spare = spare
	for c.more() {
		h.walk(&c)
	}
	return c.done("FETCH_OK")
}

// AppendTo appends the header to dst.
func (h *Hello) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *Hello) Decode(b []byte) error {
	*h = Hello{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("HELLO")
}

// AppendTo appends the header to dst.
func (h *HelloOK) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *HelloOK) Decode(b []byte) error {
	*h = HelloOK{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("HELLO_OK")
}

// AppendTo appends the header to dst.
func (h *Lookup) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *Lookup) Decode(b []byte) error {
	*h = Lookup{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("LOOKUP")
}

// AppendTo appends the header to dst.
func (h *LookupOK) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *LookupOK) Decode(b []byte) error {
	*h = LookupOK{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("LOOKUP_OK")
}

// AppendTo appends the header to dst.
func (h *OpenProducer) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *OpenProducer) Decode(b []byte) error {
	*h = OpenProducer{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("OPEN_PRODUCER")
}

// AppendTo appends the header to dst.
func (h *OpenProducerOK) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *OpenProducerOK) Decode(b []byte) error {
	*h = OpenProducerOK{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("OPEN_PRODUCER_OK")
}

// AppendTo appends the header to dst.
func (h *Handle) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *Handle) Decode(b []byte) error {
	*h = Handle{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("handle")
}

// AppendTo appends the header to dst.
func (h *Subscribe) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *Subscribe) Decode(b []byte) error {
	*h = Subscribe{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("SUBSCRIBE")
}

// AppendTo appends the header to dst.
func (h *SubscribeOK) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *SubscribeOK) Decode(b []byte) error {
	*h = SubscribeOK{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("SUBSCRIBE_OK")
}

// AppendTo appends the header to dst.
func (h *GapNotice) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *GapNotice) Decode(b []byte) error {
	*h = GapNotice{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("GAP")
}

// AppendTo appends the header to dst.
func (h *Ranges) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b. Its ranges are read into the memory h has.
func (h *Ranges) Decode(b []byte) error {
	*h = Ranges{Ranges: h.Ranges[:0]}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("RECEIVED")
}

// AppendTo appends the header to dst.
func (h *Ack) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b. Its ranges are read into the memory h has.
func (h *Ack) Decode(b []byte) error {
	*h = Ack{Ranges: Ranges{Ranges: h.Ranges.Ranges[:0]}}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("ACK")
}

// AppendTo appends the header to dst.
func (h *Nack) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b. Its ranges are read into the memory h has.
func (h *Nack) Decode(b []byte) error {
	spare := h.Reason
	*h = Nack{Ranges: Ranges{Ranges: h.Ranges.Ranges[:0]}}
	c := readMap(b)
	c.spare = spare
	for c.more() {
		h.walk(&c)
	}
	return c.done("NACK")
}

// AppendTo appends the header to dst.
func (h *Seek) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *Seek) Decode(b []byte) error {
	*h = Seek{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("SEEK")
}

// AppendTo appends the header to dst.
func (h *SeekOK) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *SeekOK) Decode(b []byte) error {
	*h = SeekOK{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("SEEK_OK")
}

// AppendTo appends the header to dst.
func (h *Detached) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *Detached) Decode(b []byte) error {
	*h = Detached{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("UNSUBSCRIBED")
}

// AppendTo appends the header to dst.
func (h *Admin) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	h.walk(&c)
	return c.end()
}

// Decode overwrites h with the header in b.
func (h *Admin) Decode(b []byte) error {
	*h = Admin{}
	c := readMap(b)
	for c.more() {
		h.walk(&c)
	}
	return c.done("ADMIN")
}

// AppendTo appends the header to dst.
func (e *Error) AppendTo(dst []byte) []byte {
	c := writeMap(dst)
	e.walk(&c)
	return c.end()
}

// Decode overwrites e with the header in b.
func (e *Error) Decode(b []byte) error {
	*e = Error{}
	c := readMap(b)
	for c.more() {
		e.walk(&c)
	}
	return c.done("ERROR")
}

package memory

// View is a run of whole batches, back to back, as they lie in memory. It must
// be released once, and Data not used afterwards.
type View struct {
	Data      []byte
	Base, End uint64 // offsets; Base may lie below the offset asked for
	chunk     *Chunk
}

// View makes a view of data, which lies in c. One of the caller's references
// becomes the view's.
func (c *Chunk) View(data []byte, base, end uint64) View {
	return View{Data: data, Base: base, End: end, chunk: c}
}

// Release gives the memory back.
func (v View) Release() {
	if v.chunk != nil {
		v.chunk.Release()
	}
}

// Retain adds a reference to the view's memory: each needs a Release of its own.
func (v View) Retain() {
	if v.chunk != nil {
		v.chunk.Retain()
	}
}

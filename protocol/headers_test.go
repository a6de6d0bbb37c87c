package protocol

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// coded is every header: what it can do in both directions.
type coded interface {
	AppendTo(dst []byte) []byte
	Decode(b []byte) error
}

// headers returns a zero value of every header type by name.
func headers() map[string]coded {
	all := []coded{
		&Error{}, &Hello{}, &HelloOK{}, &Lookup{}, &LookupOK{}, &Admin{}, &OpenProducer{}, &OpenProducerOK{},
		&Produce{}, &ProduceOK{}, &Handle{}, &Subscribe{}, &SubscribeOK{}, &Credit{}, &Deliver{}, &GapNotice{},
		&Ranges{}, &Ack{}, &AckOK{}, &Nack{}, &Seek{}, &SeekOK{}, &Detached{}, &Fetch{}, &FetchOK{},
	}
	m := map[string]coded{}
	for _, h := range all {
		m[reflect.TypeOf(h).Elem().Name()] = h
	}
	return m
}

// fresh returns a new zero value of the type of h.
func fresh(h coded) coded { return reflect.New(reflect.TypeOf(h).Elem()).Interface().(coded) }

// arbitrary fills v with any value that its type can hold.
func arbitrary(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, "int"))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "uint") >> (64 - v.Type().Bits()))
	case reflect.String:
		unit := rapid.SampledFrom([]string{"a", "/ns", "é", "\xff"}).Draw(t, "unit")
		v.SetString(strings.Repeat(unit, rapid.IntRange(0, 300).Draw(t, "times")))
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "set") {
			v.Set(reflect.New(v.Type().Elem()))
			arbitrary(t, v.Elem())
		}
	case reflect.Slice:
		n := rapid.IntRange(0, 20).Draw(t, "len")
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if n > 0 {
				v.SetBytes(bytes.Repeat([]byte{byte(n)}, n*n))
			}
			return
		}
		for range n {
			e := reflect.New(v.Type().Elem()).Elem()
			arbitrary(t, e)
			v.Set(reflect.Append(v, e))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			arbitrary(t, v.Field(i))
		}
		if r, ok := v.Addr().Interface().(*Range); ok && r.From > r.To {
			r.From, r.To = r.To, r.From
		}
	default:
		t.Fatalf("no values for %s", v.Type())
	}
}

func TestHeaderComesBackAsItWas(t *testing.T) {
	for name, zero := range headers() {
		t.Run(name, func(t *testing.T) {
			used := fresh(zero) // decoded into again and again: nothing old may show
			rapid.Check(t, func(t *rapid.T) {
				in := fresh(zero)
				arbitrary(t, reflect.ValueOf(in).Elem())
				b := in.AppendTo([]byte("before"))
				if !bytes.HasPrefix(b, []byte("before")) {
					t.Fatal("what stood in dst is gone")
				}
				if err := used.Decode(b[len("before"):]); err != nil {
					t.Fatalf("decode %x: %v", b, err)
				}
				if got, want := fmt.Sprintf("%+v", deref(used)), fmt.Sprintf("%+v", deref(in)); got != want {
					t.Fatalf("came back as\n%s, was\n%s", got, want)
				}
			})
		})
	}
}

// deref makes pointers inside a header printable.
func deref(h coded) any {
	if l, ok := h.(*Lookup); ok && l.Create != nil {
		return []any{l.Topic, *l.Create}
	}
	return reflect.ValueOf(h).Elem().Interface()
}

// The tags are the documented keys; another implementation of msgpack, which
// goes by them, must read what we write, and we what it writes in whatever order.
func TestHeadersAgreeWithTheirTags(t *testing.T) {
	for name, zero := range headers() {
		switch name {
		case "Ranges", "Ack", "Nack": // the ranges are flat on the wire, see TestRangesAreFlat
			continue
		}
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				in := fresh(zero)
				arbitrary(t, reflect.ValueOf(in).Elem())
				theirs := fresh(zero)
				if err := msgpack.Unmarshal(in.AppendTo(nil), theirs); err != nil {
					t.Fatalf("the library reads ours: %v", err)
				}
				if got, want := fmt.Sprintf("%+v", deref(theirs)), fmt.Sprintf("%+v", deref(in)); got != want {
					t.Fatalf("the library reads\n%s, it was\n%s", got, want)
				}
				b, err := msgpack.Marshal(in) // integers in their widest encoding
				if err != nil {
					t.Fatal(err)
				}
				ours := fresh(zero)
				if err := ours.Decode(b); err != nil {
					t.Fatalf("we read theirs, %x: %v", b, err)
				}
				if got, want := fmt.Sprintf("%+v", deref(ours)), fmt.Sprintf("%+v", deref(in)); got != want {
					t.Fatalf("we read\n%s, it was\n%s", got, want)
				}
			})
		})
	}
}

func TestDecodeTakesAnyOrderAndSkipsTheUnknown(t *testing.T) {
	type anything map[string]any
	b, err := msgpack.Marshal(&struct {
		Deep   anything `msgpack:"zz"`
		Late   bool     `msgpack:"l"`
		First  int8     `msgpack:"f"`
		List   []any    `msgpack:"yy"`
		Handle int64    `msgpack:"h"`
		Float  float64  `msgpack:"xx"`
	}{anything{"a": anything{"b": []any{1, "x", nil, 2.5, []byte{1}}}}, true, 7, []any{[]any{[]any{}}, true}, 1 << 31, 1.5})
	if err != nil {
		t.Fatal(err)
	}
	var h Deliver
	if err := h.Decode(b); err != nil {
		t.Fatal(err)
	}
	if want := (Deliver{Handle: 1 << 31, First: 7, Late: true}); h != want {
		t.Errorf("read %+v, want %+v", h, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	tests := map[string]struct {
		into coded
		b    string
	}{
		"nothing":                    {&Produce{}, ""},
		"no map":                     {&Produce{}, "\x01"},
		"cut off":                    {&Produce{}, "\x82\xa1h\x01"},
		"bytes behind":               {&Produce{}, "\x81\xa1h\x01\x00"},
		"negative handle":            {&Produce{}, "\x81\xa1h\xff"},
		"handle of 33 bits":          {&Produce{}, "\x81\xa1h\xcf\x00\x00\x00\x01\x00\x00\x00\x00"},
		"version of 17 bits":         {&Hello{}, "\x81\xa2hi\xce\x00\x01\x00\x00"},
		"type of 9 bits":             {&Subscribe{}, "\x81\xa2ty\xcd\x01\x00"},
		"partition beyond int64":     {&Fetch{}, "\x81\xa1p\xcf\xff\xff\xff\xff\xff\xff\xff\xff"},
		"float for a number":         {&Produce{}, "\x81\xa1h\xca\x00\x00\x00\x00"},
		"number for a bool":          {&Deliver{}, "\x81\xa1l\x01"},
		"number for a text":          {&Fetch{}, "\x81\xa1t\x01"},
		"number for a map":           {&Fetch{}, "\x81\xa1f\x01"},
		"odd ranges":                 {&Ack{}, "\x81\xa1r\x93\x01\x02\x03"},
		"range backwards":            {&Ack{}, "\x81\xa1r\x92\x05\x04"},
		"ranges that claim 4 G":      {&Ack{}, "\x81\xa1r\xdd\xff\xff\xff\xfe\x01\x02"},
		"pairs that claim 4 G":       {&Ack{}, "\xdf\xff\xff\xff\xff\xa1r\x90"},
		"text that claims 4 G":       {&Fetch{}, "\x81\xa1t\xdb\xff\xff\xff\xffabc"},
		"unknown that claims 4 G":    {&Fetch{}, "\x81\xa1?\xdf\xff\xff\xff\xff\x01"},
		"unknown that is no msgpack": {&Fetch{}, "\x81\xa1?\xc1"},
		"too many strings":           {&Hello{}, "\x81\xa1f\xdc\x04\x01" + strings.Repeat("\xa0", 1025)},
		"owners that claim 4 G":      {&LookupOK{}, "\x81\xa1p\xdd\xff\xff\xff\xff\x80"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.into.Decode([]byte(test.b))
			if e, ok := err.(*Error); !ok || e.Code != CodeBadFrame {
				t.Errorf("got %v, want BAD_FRAME", err)
			}
		})
	}
}

// Nesting deeper than any stack allows must be skipped or refused, not recursed into.
func TestDecodeSkipsWithoutRecursion(t *testing.T) {
	const depth = 1 << 20
	deep := "\x81\xa1?" + strings.Repeat("\x91", depth) + "\x01"
	if err := new(Produce).Decode([]byte(deep)); err != nil {
		t.Errorf("deep unknown field: %v", err)
	}
	if err := new(Produce).Decode([]byte(deep[:len(deep)-1])); err == nil {
		t.Error("a deep unknown field that is cut off was accepted")
	}
}

func TestRangesAreFlat(t *testing.T) {
	h := Ack{Ranges: Ranges{Handle: 1, Ranges: []Range{{1, 4}, {300, 301}}}, Confirm: true}
	want := "\x83\xa1h\x01\xa1r\x94\x01\x04\xcd\x01\x2c\xcd\x01\x2d\xa1c\xc3"
	if got := h.AppendTo(nil); string(got) != want {
		t.Errorf("wrote %x, want %x", got, want)
	}
}

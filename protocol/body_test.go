package protocol

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// bodies returns a zero value of each type that an admin operation takes or returns.
func bodies() []any {
	return []any{
		&TopicArgs{}, &ListArgs{}, &TopicCreate{}, &TopicCreated{}, &TopicList{}, &TopicDescription{}, &TopicSet{},
		&Truncate{}, &Truncated{}, &Resolve{}, &VerifyReport{}, &AuditReport{}, &SubArgs{}, &SubCreate{}, &SubReset{}, &SubList{},
		&SubDescription{}, &Status{}, &Done{},
	}
}

// plausible is arbitrary with lists that are never nil and texts that a broker
// would write: an empty list and none are one thing on the wire.
func plausible(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat(rapid.SampledFrom([]string{"a", "/ns", "é"}).Draw(t, "text"), rapid.IntRange(8, 40).Draw(t, "times")))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rapid.IntRange(1, 2).Draw(t, "len"), 2))
		for i := range v.Len() {
			plausible(t, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			plausible(t, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		plausible(t, v.Elem())
	default:
		arbitrary(t, v)
	}
}

func TestBodyComesBackAsItWas(t *testing.T) {
	for _, zero := range bodies() {
		t.Run(reflect.TypeOf(zero).Elem().Name(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				in, out := reflect.New(reflect.TypeOf(zero).Elem()), reflect.New(reflect.TypeOf(zero).Elem())
				plausible(t, in.Elem())
				b, err := EncodeBody(in.Interface())
				if err != nil {
					t.Fatal(err)
				}
				if err := DecodeBody(b, out.Interface()); err != nil {
					t.Fatalf("decode %x: %v", b, err)
				}
				if !reflect.DeepEqual(in.Interface(), out.Interface()) {
					t.Fatalf("came back as\n%+v, was\n%+v", out.Elem(), in.Elem())
				}
			})
		})
	}
}

func TestDecodeBodyRefuses(t *testing.T) {
	tests := map[string]struct {
		b    string
		code Code
	}{
		"cut off":                     {"\x81\xa1t", CodeBadRequest},
		"bytes behind":                {"\x80\x80", CodeBadRequest},
		"a list that claims 4 G":      {"\x81\xa1t\xdd\xff\xff\xff\xff", CodeBadRequest},
		"a list of a byte an element": {"\x81\xa1t\xdd\x00\x40\x00\x00" + strings.Repeat("\x80", 1<<22), CodeBadRequest},
		"nested too deeply":           {strings.Repeat("\x91", 1<<20) + "\x01", CodeBadRequest},
		"text for a list":             {"\x81\xa1t\xa1x", CodeBadRequest},
		"over the limit":              {strings.Repeat("\x80", MaxAdminBody+1), CodeTooLarge},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var err error
			n := allocated(func() { err = DecodeBody([]byte(test.b), &TopicList{}) })
			if e, ok := err.(*Error); !ok || e.Code != test.code {
				t.Errorf("got %v, want %s", err, test.code)
			}
			if n > 2*uint64(len(test.b))+1<<16 {
				t.Errorf("%d bytes allocated for %d", n, len(test.b))
			}
		})
	}
	if err := DecodeBody(nil, &Done{}); err != nil {
		t.Errorf("no body: %v", err)
	}
	if _, err := EncodeBody(func() {}); err == nil {
		t.Error("a function was encoded")
	}
}

// Numbers take their shortest form, as docs/protocol.md says.
func TestEncodeBodyIsCompact(t *testing.T) {
	b, err := EncodeBody(&TopicArgs{Topic: "a", Partition: -1})
	if want := "\x82\xa1t\xa1a\xa1p\xff"; err != nil || string(b) != want {
		t.Errorf("%x, %v, want %x", b, err, want)
	}
}

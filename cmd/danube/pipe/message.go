package pipe

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/render"
)

// AppendRaw appends the payload as it is, and a newline.
func AppendRaw(b []byte, m *client.Message) []byte {
	b = append(b, m.Payload...)
	return append(b, '\n')
}

// AppendText appends the payload on one line; what is not printable is written as Go would.
func AppendText(b []byte, m *client.Message) []byte {
	for rest := m.Payload; len(rest) > 0; {
		if c := rest[0]; c >= ' ' && c < 0x7f || c == '\t' {
			b, rest = append(b, c), rest[1:]
			continue
		}
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, rest[0])
		case unicode.IsPrint(r):
			b = append(b, rest[:n]...)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b = append(b, q[1:len(q)-1]...)
		}
		rest = rest[n:]
	}
	return append(b, '\n')
}

// AppendJSON appends m as one object on a line.
func AppendJSON(b []byte, m *client.Message) []byte {
	b = appendJSON(append(b, `{"topic":`...), m.Topic)
	b = strconv.AppendInt(append(b, `,"partition":`...), int64(m.Partition), 10)
	b = strconv.AppendUint(append(b, `,"offset":`...), m.Offset, 10)
	if m.Key == nil {
		b = append(b, `,"key":null`...)
	} else {
		b = appendBytes(b, "key", m.Key)
	}
	b = append(b, `,"properties":{`...)
	for i, p := range m.Properties {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(append(appendJSON(b, p.Name), ':'), p.Value)
	}
	b = appendBytes(append(b, '}'), "payload", m.Payload)
	b = m.PublishTime.UTC().AppendFormat(append(b, `,"publish_time":"`...), render.TimeLayout)
	b = m.AppendTime.UTC().AppendFormat(append(b, `","append_time":"`...), render.TimeLayout)
	b = strconv.AppendInt(append(b, `","deliveries":`...), int64(m.Deliveries), 10)
	return append(b, "}\n"...)
}

// appendBytes appends a field: as text when it is UTF-8, else in base64 under name_base64.
func appendBytes(b []byte, name string, value []byte) []byte {
	b = append(append(b, `,"`...), name...)
	if utf8.Valid(value) {
		return appendJSON(append(b, `":`...), value)
	}
	b = base64.StdEncoding.AppendEncode(append(b, `_base64":"`...), value)
	return append(b, '"')
}

// appendJSON appends s as a JSON string; bytes that are no UTF-8 become U+FFFD.
func appendJSON[S string | []byte](b []byte, s S) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	clean := 0 // s[clean:i] needs no escape
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)]))
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
			b = append(append(b, s[clean:i]...), "\ufffd"...)
			i += n
			clean = i
			continue
		}
		b = append(b, s[clean:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		clean = i
	}
	return append(append(b, s[clean:]...), '"')
}

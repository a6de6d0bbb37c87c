// Package render is how a command prints its result: a value as one JSON document, or tables, numbers and times for a
// person. It knows nothing of what it prints.
package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/danubemq/danube/cmd/danube/fail"
)

// JSON writes v as one JSON document. Lists that are empty are written as [], never as null.
func JSON(w io.Writer, v any) error {
	value := reflect.New(reflect.TypeOf(v)).Elem()
	value.Set(reflect.ValueOf(v))
	fillLists(value)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(value.Interface()); err != nil {
		return unread(fmt.Errorf("write the result: %w", err))
	}
	return nil
}

// fillLists replaces nil slices below v by empty ones. What lies behind slices of the caller is changed too.
func fillLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fillLists(v.Field(i))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			fillLists(v.Elem())
		}
	case reflect.Slice:
		if v.IsNil() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			fillLists(v.Index(i))
		}
	}
}

// TimeLayout is RFC 3339 in UTC with milliseconds.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Table collects rows and prints them in columns without lines.
type Table struct {
	Header []string
	rows   [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Empty reports whether the table has no row.
func (t *Table) Empty() bool { return len(t.rows) == 0 }

// Print writes the table. Without rows it writes the header alone, so that a person sees what is empty.
func (t *Table) Print(w io.Writer) error {
	var text bytes.Buffer
	tab := tablewriter.NewTable(&text,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone,
			Settings: tw.Settings{
				Separators: tw.Separators{BetweenColumns: tw.Off, BetweenRows: tw.Off, ShowHeader: tw.Off},
				Lines:      tw.LinesNone,
			},
		})),
		tablewriter.WithConfig(tablewriter.Config{
			Header: cells(),
			Row:    cells(),
		}))
	header := make([]string, len(t.Header))
	for i, name := range t.Header {
		header[i] = strings.ToUpper(name)
	}
	tab.Header(header)
	for _, row := range t.rows {
		if err := tab.Append(row); err != nil {
			return fmt.Errorf("build the table: %w", err)
		}
	}
	if err := tab.Render(); err != nil {
		return fmt.Errorf("build the table: %w", err)
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return unread(fmt.Errorf("write the table: %w", err))
		}
	}
	return nil
}

// unread makes the end of a command of an error of writing what it prints: whoever closed the pipe has seen enough.
func unread(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return fail.With(fail.Done, err)
	}
	return err
}

// cells is how a table's cells look: left, unwrapped, two blanks between the columns.
func cells() tw.CellConfig {
	return tw.CellConfig{
		Formatting: tw.CellFormatting{AutoFormat: tw.Off, AutoWrap: tw.WrapNone},
		Alignment:  tw.CellAlignment{Global: tw.AlignLeft},
		Padding:    tw.CellPadding{Global: tw.Padding{Right: "  ", Overwrite: true}},
	}
}

// Time prints milliseconds since 1970 as RFC 3339 in UTC.
func Time(ms int64) string {
	return time.UnixMilli(ms).UTC().Format(TimeLayout)
}

// YesNo is a truth value for a table.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Plural is "1 partition", "2 partitions".
func Plural[N int | int64 | uint64](n N, noun string) string {
	s := strconv.FormatInt(int64(n), 10) + " " + noun
	if n != 1 {
		s += "s"
	}
	return s
}

// Grouped prints a number with thin groups for a person: 3,300,000.
func Grouped[N int | int64 | uint64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Size prints bytes for a table: three digits and a unit.
func Size(n int64) string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if scale := int64(1) << (40 - 10*i); n >= scale {
			return strconv.FormatFloat(float64(n)/float64(scale), 'f', 1, 64) + " " + unit
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}

// Offsets is [from, to) as its first and last offset.
func Offsets(from, to uint64) string {
	if from >= to {
		return "none"
	}
	return U64(from) + "-" + U64(to-1)
}

// U64 is n in digits.
func U64(n uint64) string { return strconv.FormatUint(n, 10) }

package segment

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	nameSuffix = ".seg"
	hintSuffix = ".idx"
	baseDigits = 20
	nameLength = baseDigits + 1 + 16 + len(nameSuffix)
)

// FormatName is the file name of a segment: base offset in 20 decimal digits and
// epoch in 16 hexadecimal ones, so that names sort by offset, then by epoch.
func FormatName(base, epoch uint64) string {
	return fmt.Sprintf("%020d-%016x%s", base, epoch, nameSuffix)
}

// ParseName is the reverse of FormatName. False: the file is no segment, or
// somebody renamed it.
func ParseName(name string) (base, epoch uint64, ok bool) {
	if len(name) != nameLength || !strings.HasSuffix(name, nameSuffix) {
		return 0, 0, false
	}
	base, err := strconv.ParseUint(name[:baseDigits], 10, 64)
	if err != nil {
		return 0, 0, false
	}
	epoch, err = strconv.ParseUint(name[baseDigits+1:nameLength-len(nameSuffix)], 16, 64)
	if err != nil || FormatName(base, epoch) != name {
		return 0, 0, false
	}
	return base, epoch, true
}

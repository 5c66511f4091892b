package record

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

const hexUpper = "0123456789ABCDEF"

// AppendOffsetID appends the offset message id of a record: store host and log position as upper-case hex digits, 32 for
// an IPv4 host, 56 for an IPv6 one.
func AppendOffsetID(dst []byte, storeHost netip.AddrPort, position int64) []byte {
	var raw [28]byte
	n := putHost(raw[:], storeHost)
	binary.BigEndian.PutUint64(raw[n:], uint64(position))
	for _, c := range raw[:n+8] {
		dst = append(dst, hexUpper[c>>4], hexUpper[c&15])
	}
	return dst
}

// OffsetID is AppendOffsetID as a string.
func OffsetID(storeHost netip.AddrPort, position int64) string {
	var buf [56]byte
	return string(AppendOffsetID(buf[:0], storeHost, position))
}

// ParseOffsetID takes an offset message id apart. Digits may be of either case.
func ParseOffsetID(id string) (storeHost netip.AddrPort, position int64, err error) {
	if len(id) != 32 && len(id) != 56 {
		return storeHost, 0, fmt.Errorf("record: offset message id has %d characters, want 32 or 56 hex digits", len(id))
	}
	var raw [28]byte
	for i := range len(id) {
		c := id[i]
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		default:
			return storeHost, 0, fmt.Errorf("record: offset message id has %q at %d, want a hex digit", c, i)
		}
		raw[i/2] = raw[i/2]<<4 | c
	}
	n := len(id)/2 - 8
	if port := binary.BigEndian.Uint32(raw[n-4:]); port > 65535 {
		return storeHost, 0, fmt.Errorf("record: offset message id has port %d, most is 65535", port)
	}
	position = int64(binary.BigEndian.Uint64(raw[n:]))
	if position < 0 {
		return storeHost, 0, fmt.Errorf("record: offset message id has a negative position")
	}
	return host(raw[:n]), position, nil
}

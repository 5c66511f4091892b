package remoting

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxFrame is the largest frame in bytes, its length word included; RocketMQ's com.rocketmq.remoting.frameMaxLength.
	MaxFrame = 16 << 20
	// minTotal is the smallest value of the length word: the serialize type and the header length.
	minTotal = 4
	// prefixLen is what comes before the header.
	prefixLen = 8
)

// ErrMalformed is wrapped by every error about a frame that cannot be understood. The connection it came from cannot be
// read any further; the protocol has no answer for it.
var ErrMalformed = errors.New("malformed frame")

// ErrTooLarge is returned for a frame of more than MaxFrame bytes, on both ways.
var ErrTooLarge = errors.New("frame larger than 16777216 bytes")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// FrameSize returns the size of a frame from its first four bytes, the length word included.
func FrameSize(prefix []byte) (int, error) {
	total := int32(binary.BigEndian.Uint32(prefix))
	if total < minTotal {
		return 0, malformed("length word %d, want at least %d", total, minTotal)
	}
	if total > MaxFrame-4 {
		return 0, fmt.Errorf("%w: length word %d", ErrTooLarge, total)
	}
	return int(total) + 4, nil
}

// Decode reads a whole frame, as long as FrameSize says, into h and returns its body, nil when there is none. Header and
// body alias frame.
func (h *Header) Decode(frame []byte) (body []byte, err error) {
	if len(frame) < prefixLen {
		return nil, malformed("%d bytes, want at least %d", len(frame), prefixLen)
	}
	size, err := FrameSize(frame)
	if err != nil {
		return nil, err
	}
	if size != len(frame) {
		return nil, malformed("%d bytes, but the length word says %d", len(frame), size)
	}
	word := binary.BigEndian.Uint32(frame[4:])
	s, n := Serialize(word>>24), int(word&0xFFFFFF)
	if n > size-prefixLen {
		return nil, malformed("header length %d, but only %d bytes follow", n, size-prefixLen)
	}
	if err := h.DecodeHeader(s, frame[prefixLen:prefixLen+n]); err != nil {
		return nil, err
	}
	if prefixLen+n < size {
		body = frame[prefixLen+n : size : size]
	}
	return body, nil
}

// DecodeHeader reads the header alone. b must hold nothing else.
func (h *Header) DecodeHeader(s Serialize, b []byte) error {
	h.Reset()
	h.Serialize = s
	switch s {
	case JSON:
		return h.decodeJSON(b)
	case Binary:
		return h.decodeBinary(b)
	}
	return malformed("serialize type %d, want 0 (JSON) or 1 (ROCKETMQ)", s)
}

func (h *Header) decodeBinary(b []byte) error {
	const fixed = 21
	if len(b) < fixed {
		return malformed("binary header of %d bytes, want at least %d", len(b), fixed)
	}
	h.Code = int32(int16(binary.BigEndian.Uint16(b)))
	if l := Language(b[2]); l >= 0 && int(l) < len(languageNames) {
		h.Language = l
	}
	h.Version = int32(int16(binary.BigEndian.Uint16(b[3:])))
	h.Opaque = int32(binary.BigEndian.Uint32(b[5:]))
	h.Flag = int32(binary.BigEndian.Uint32(b[9:]))
	n := int32(binary.BigEndian.Uint32(b[13:]))
	b = b[17:]
	if n < 0 || int(n) > len(b)-4 {
		return malformed("remark length %d, but only %d bytes follow", n, len(b))
	}
	h.Remark = bytesString(b[:n])
	b = b[n:]
	n = int32(binary.BigEndian.Uint32(b))
	b = b[4:]
	if n < 0 || int(n) > len(b) {
		return malformed("ext block length %d, but only %d bytes follow", n, len(b))
	}
	for b = b[:n]; len(b) > 0; {
		if len(b) < 2 {
			return malformed("ext block ends inside a key length")
		}
		k := int(int16(binary.BigEndian.Uint16(b)))
		if b = b[2:]; k < 0 || k > len(b)-4 {
			return malformed("ext key length %d, but only %d bytes follow", k, len(b))
		}
		key := b[:k]
		v := int32(binary.BigEndian.Uint32(b[k:]))
		if b = b[k+4:]; v < 0 || int(v) > len(b) {
			return malformed("ext value length %d, but only %d bytes follow", v, len(b))
		}
		if len(h.Ext) == MaxFields {
			return malformed("more than %d ext fields", MaxFields)
		}
		// Java reads an empty value back as null; Go writes them. They are kept, and Require takes them for missing.
		h.Ext = append(h.Ext, Field{bytesString(key), bytesString(b[:v])})
		b = b[v:]
	}
	return nil
}

// ReadFrame reads one whole frame from r into buf, which grows as bytes arrive and not on the word of the sender, and
// returns it. A connection that ends between two frames gives io.EOF, inside one io.ErrUnexpectedEOF.
func ReadFrame(r io.Reader, buf []byte) ([]byte, error) {
	buf = grow(buf[:0], 4)[:4]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	size, err := FrameSize(buf)
	if err != nil {
		return nil, err
	}
	for len(buf) < size {
		chunk := min(size-len(buf), max(cap(buf)-len(buf), 64<<10))
		at := len(buf)
		buf = grow(buf, chunk)[:at+chunk]
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return buf, nil
}

func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	return append(b, make([]byte, n)...)[:len(b)]
}

package wire

import (
	"encoding/binary"
	"fmt"
)

// Sizes and limits of a frame, in bytes.
const (
	MagicRequest  = 0x80
	MagicResponse = 0x81

	RequestFixed  = 12 // fixed part of a request
	ResponseFixed = 16 // fixed part of a response

	MaxHeader = 32767    // headerLength is a signed 16-bit number
	MaxFrame  = 16 << 20 // most bytes of header and body together
)

// Head is the fixed part of a frame.
type Head struct {
	Response  bool
	Opcode    Opcode
	Status    Status // of a response
	HeaderLen int    // 0..MaxHeader, at most TotalLen
	TotalLen  int    // bytes behind the fixed part: header and body. 0..MaxFrame
	Opaque    uint32 // the requester's number; a response repeats it
}

// Fixed is the length of the fixed part.
func (h Head) Fixed() int {
	if h.Response {
		return ResponseFixed
	}
	return RequestFixed
}

// Size is the length of the whole frame.
func (h Head) Size() int { return h.Fixed() + h.TotalLen }

// Frame is one whole frame. Header and Body alias the bytes it was parsed from.
type Frame struct {
	Head
	Header []byte
	Body   []byte
}

// ParseHead reads the fixed part of the frame at the start of b and judges it, before any of the rest has arrived.
//
// It returns ErrShort while b is too short to tell, and a [*FrameError] for what cannot be a frame: a wrong magic,
// a negative or oversize length. The stream cannot be followed after a FrameError; its Action says whether it deserves
// an answer first.
func ParseHead(b []byte) (Head, error) {
	if len(b) == 0 {
		return Head{}, ErrShort
	}
	var h Head
	var hl int16
	var tl int32
	switch b[0] {
	case MagicRequest:
		if len(b) < RequestFixed {
			return Head{}, ErrShort
		}
		hl = int16(binary.BigEndian.Uint16(b[2:]))
		tl = int32(binary.BigEndian.Uint32(b[4:]))
		h.Opaque = binary.BigEndian.Uint32(b[8:])
	case MagicResponse:
		if len(b) < ResponseFixed {
			return Head{}, ErrShort
		}
		h.Response = true
		h.Status = Status(binary.BigEndian.Uint16(b[2:]))
		hl = int16(binary.BigEndian.Uint16(b[4:]))
		// b[6:8] is reserved.
		tl = int32(binary.BigEndian.Uint32(b[8:]))
		h.Opaque = binary.BigEndian.Uint32(b[12:])
	default:
		return Head{}, &FrameError{Action: Close, Reason: fmt.Sprintf("magic 0x%02x is neither a request (0x80) nor a response (0x81)", b[0])}
	}
	h.Opcode = Opcode(b[1])
	h.HeaderLen, h.TotalLen = int(hl), int(tl)

	var reason string
	switch {
	case tl < 0 || tl > MaxFrame:
		reason = fmt.Sprintf("totalBodyLength %d is outside 0..%d", tl, MaxFrame)
	case hl < 0:
		reason = fmt.Sprintf("headerLength %d is negative; a header has at most %d bytes", hl, MaxHeader)
	case int32(hl) > tl:
		reason = fmt.Sprintf("headerLength %d is more than totalBodyLength %d", hl, tl)
	default:
		return h, nil
	}
	act := AnswerClose
	if h.Response {
		act = Close // a response is never answered
	}
	return h, &FrameError{Action: act, Opcode: h.Opcode, Opaque: h.Opaque, Reason: reason}
}

// Parse reads the frame at the start of b and returns how many bytes it takes. Errors are those of [ParseHead]; with
// ErrShort more bytes are needed and nothing was consumed.
func Parse(b []byte) (f Frame, n int, err error) {
	h, err := ParseHead(b)
	if err != nil {
		return Frame{Head: h}, 0, err
	}
	n = h.Size()
	if len(b) < n {
		return Frame{Head: h}, 0, ErrShort
	}
	f, err = FrameOf(h, b[:n])
	return f, n, err
}

// FrameOf splits the bytes of one whole frame whose head was parsed before. It returns ErrShort when b is not exactly
// h.Size() bytes.
func FrameOf(h Head, b []byte) (Frame, error) {
	if len(b) != h.Size() {
		return Frame{Head: h}, ErrShort
	}
	at := h.Fixed()
	return Frame{Head: h, Header: b[at : at+h.HeaderLen : at+h.HeaderLen], Body: b[at+h.HeaderLen:]}, nil
}

// Builder completes a frame that is being appended to a buffer: Begin or BeginResponse, append the header,
// EndHeader, append the body, End. It is a value; nothing is allocated.
type Builder struct {
	at     int // where the frame starts
	fixed  int
	header int
}

// Begin appends the fixed part of a request to dst.
func Begin(dst []byte, op Opcode, opaque uint32) ([]byte, Builder) {
	b := Builder{at: len(dst), fixed: RequestFixed}
	dst = append(dst, MagicRequest, byte(op), 0, 0, 0, 0, 0, 0)
	return binary.BigEndian.AppendUint32(dst, opaque), b
}

// BeginResponse appends the fixed part of a response to dst.
func BeginResponse(dst []byte, op Opcode, status Status, opaque uint32) ([]byte, Builder) {
	b := Builder{at: len(dst), fixed: ResponseFixed}
	dst = append(dst, MagicResponse, byte(op), byte(status>>8), byte(status), 0, 0, 0, 0, 0, 0, 0, 0)
	return binary.BigEndian.AppendUint32(dst, opaque), b
}

// EndHeader marks the end of the header; what is appended to dst from here on is the body.
func (b *Builder) EndHeader(dst []byte) { b.header = len(dst) - b.at - b.fixed }

// End fills in the lengths. extra is the number of body bytes that the caller sends behind dst from elsewhere.
// When the header or the frame is too long it returns dst without the frame, and ErrTooLong.
func (b *Builder) End(dst []byte, extra int) ([]byte, error) {
	total := len(dst) - b.at - b.fixed + extra
	if b.header > MaxHeader || total > MaxFrame {
		return dst[:b.at], fmt.Errorf("%w: header %d bytes (limit %d), header and body %d bytes (limit %d)",
			ErrTooLong, b.header, MaxHeader, total, MaxFrame)
	}
	f := dst[b.at:]
	if b.fixed == RequestFixed {
		binary.BigEndian.PutUint16(f[2:], uint16(b.header))
		binary.BigEndian.PutUint32(f[4:], uint32(total))
	} else {
		binary.BigEndian.PutUint16(f[4:], uint16(b.header))
		binary.BigEndian.PutUint32(f[8:], uint32(total))
	}
	return dst, nil
}

// Len is how long the frame is so far.
func (b *Builder) Len(dst []byte) int { return len(dst) - b.at }

// AppendRequest appends a whole request. It returns ErrTooLong and dst unchanged when a limit is passed.
func AppendRequest(dst []byte, op Opcode, opaque uint32, header, body []byte) ([]byte, error) {
	dst, b := Begin(dst, op, opaque)
	dst = append(dst, header...)
	b.EndHeader(dst)
	dst = append(dst, body...)
	return b.End(dst, 0)
}

// AppendResponse appends a whole response. It returns ErrTooLong and dst unchanged when a limit is passed.
func AppendResponse(dst []byte, op Opcode, status Status, opaque uint32, header, body []byte) ([]byte, error) {
	dst, b := BeginResponse(dst, op, status, opaque)
	dst = append(dst, header...)
	b.EndHeader(dst)
	dst = append(dst, body...)
	return b.End(dst, 0)
}

// AppendAnswer appends a response without a body. With text it carries an [ErrorMessage] header, as every refusal does;
// text is cut to MaxErrorText bytes. Without text it has no header, as legacy clients expect of success.
func AppendAnswer(dst []byte, op Opcode, status Status, opaque uint32, text string) []byte {
	dst, b := BeginResponse(dst, op, status, opaque)
	if text != "" {
		dst = AppendErrorText(dst, text)
	}
	b.EndHeader(dst)
	dst, _ = b.End(dst, 0) // the header is at most MaxErrorText and a tag
	return dst
}

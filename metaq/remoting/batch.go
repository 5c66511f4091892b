package remoting

import (
	"encoding/binary"
	"fmt"
)

// BatchMessage is one message in the body of a SEND_BATCH_MESSAGE.
type BatchMessage struct {
	Flag       int32 // the user's, opaque
	Body       []byte
	Properties string // name 0x01 value 0x02 ...
}

// batchHead is the part of a message in front of its body: size, magic, checksum, flag and length of the body. RocketMQ reads the
// last two alone and ignores what the others say.
const batchHead = 5 * 4

// NextBatchMessage takes the first message off a batch. Body and properties alias b. A message that does not end inside b is a *BodyError.
func NextBatchMessage(b []byte) (m BatchMessage, rest []byte, err error) {
	if len(b) < batchHead {
		return m, nil, batchError("its head has %d bytes of %d", len(b), batchHead)
	}
	m.Flag = int32(binary.BigEndian.Uint32(b[12:]))
	n, b := binary.BigEndian.Uint32(b[16:]), b[batchHead:]
	if uint64(n)+2 > uint64(len(b)) {
		return m, nil, batchError("its body has %d bytes and %d are left for it and the length of its properties", n, len(b))
	}
	m.Body, b = b[:n:n], b[n:]
	p, b := int(binary.BigEndian.Uint16(b)), b[2:]
	if p > len(b) {
		return m, nil, batchError("its properties have %d bytes and %d are left", p, len(b))
	}
	m.Properties = bytesString(b[:p])
	return m, b[p:], nil
}

func batchError(format string, args ...any) error {
	return fmt.Errorf(format, args...)
}

// AppendBatchMessage appends a message to the body of a batch, as clients write it.
func AppendBatchMessage(b []byte, m *BatchMessage) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(batchHead+len(m.Body)+2+len(m.Properties)))
	b = append(b, make([]byte, 8)...)
	b = binary.BigEndian.AppendUint32(b, uint32(m.Flag))
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Body)))
	b = append(b, m.Body...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Properties)))
	return append(b, m.Properties...)
}

// Package record is the codec of the records in the CommitLog, byte for byte RocketMQ's (store/src/main/java/org/apache/
// rocketmq/store/MessageExtEncoder.java, common/.../message/MessageDecoder.java).
//
// A record is read through a [View] over its bytes, which decodes nothing that is not asked for and does not allocate.
// It is written by [Append] from [Fields]; the fields that are known only when the record takes its place in the log are
// patched afterwards ([SetPlace]). Properties are kept in their encoded text; [Property] finds one without a map.
//
// All integers are big-endian. Layout, for IPv4 hosts:
//
//	 0 TOTALSIZE 4        28 PHYSICALOFFSET 8   64 STOREHOST 8 (IPv6: 20)
//	 4 MAGIC 4            36 SYSFLAG 4          72 RECONSUMETIMES 4
//	 8 BODYCRC 4          40 BORNTIMESTAMP 8    76 PREPARED_TX_OFFSET 8
//	12 QUEUEID 4          48 BORNHOST 8 (20)    84 BODYLEN 4, BODY
//	16 FLAG 4             56 STORETIMESTAMP 8   .. TOPICLEN 1 (V2: 2), TOPIC
//	20 QUEUEOFFSET 8                            .. PROPLEN 2, PROPERTIES
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
)

// Magic numbers of a record. Blank marks the rest of a segment that no record fits in.
const (
	MagicV1    uint32 = 0xDAA320A7
	MagicV2    uint32 = 0xDAA320AB // topic length takes two bytes; used only for topics longer than MaxTopicV1
	MagicBlank uint32 = 0xCBD43194
)

// Limits of the format.
const (
	BlankSize          = 8     // bytes of a blank record that are written: length and magic
	MinSize            = 91    // V1, IPv4 hosts, nothing in it
	MaxTopicV1         = 127   // bytes of topic in a V1 record
	MaxTopicBytes      = 255   // longest topic name that is stored
	MaxPropertiesBytes = 32767 // bytes of encoded properties
)

// Bits of SYSFLAG (common/.../sysflag/MessageSysFlag.java).
const (
	FlagCompressed     int32 = 1 << 0
	FlagMultiTags      int32 = 1 << 1
	FlagTxMask         int32 = 3 << 2
	FlagTxNone         int32 = 0
	FlagTxPrepared     int32 = 1 << 2
	FlagTxCommit       int32 = 2 << 2
	FlagTxRollback     int32 = 3 << 2
	FlagBornV6         int32 = 1 << 4
	FlagStoreV6        int32 = 1 << 5
	FlagNeedUnwrap     int32 = 1 << 6
	FlagInnerBatch     int32 = 1 << 7
	FlagCompressorMask int32 = 7 << 8
	FlagCompressorLZ4  int32 = 1 << 8
	FlagCompressorZSTD int32 = 2 << 8
	FlagCompressorZLIB int32 = 3 << 8 // none of the three and FlagCompressed: zlib, from old clients
)

// Errors of Parse, matched with errors.Is.
var (
	ErrShort = errors.New("record: bytes end inside the record")
	ErrMagic = errors.New("record: no record starts here")
	ErrBlank = errors.New("record: blank, the segment ends here") // a padding record: no error of the log, the next segment goes on
	ErrSize  = errors.New("record: total size is not the sum of its fields")
	ErrCRC   = errors.New("record: body checksum does not match")
)

const (
	offMagic   = 4
	offCRC     = 8
	offQueueID = 12
	offFlag    = 16
	offQOffset = 20
	offPhys    = 28
	offSysFlag = 36
	offBorn    = 40
	offHosts   = 48
)

// View reads one record. It is a small value; copies refer to the same bytes and are valid as long as those are.
type View struct {
	b                  []byte
	store              int32 // offset of STORETIMESTAMP
	body, topic, props int32 // offsets of the bytes, behind their length fields
	topicLen, propsLen int32
}

// Parse checks the structure of the record that b starts with and returns a view of it; b may be longer.
// It does not check the body (see View.CheckBody).
func Parse(b []byte) (View, error) {
	if len(b) < offHosts {
		if len(b) >= 8 && binary.BigEndian.Uint32(b[offMagic:]) == MagicBlank {
			return View{}, ErrBlank
		}
		return View{}, ErrShort
	}
	magic := binary.BigEndian.Uint32(b[offMagic:])
	topicLenBytes := 1
	switch magic {
	case MagicV1:
	case MagicV2:
		topicLenBytes = 2
	case MagicBlank:
		return View{}, ErrBlank
	default:
		return View{}, ErrMagic
	}
	size := int64(int32(binary.BigEndian.Uint32(b)))
	if size < MinSize {
		return View{}, ErrSize
	}
	if size > int64(len(b)) {
		return View{}, ErrShort
	}
	b = b[:size:size]
	sys := int32(binary.BigEndian.Uint32(b[offSysFlag:]))
	v := View{b: b}
	at := int64(offHosts) + int64(hostSize(sys&FlagBornV6 != 0))
	v.store = int32(at)
	at += 8 + int64(hostSize(sys&FlagStoreV6 != 0)) + 4 + 8
	if at+4 > size {
		return View{}, ErrSize
	}
	n := int64(int32(binary.BigEndian.Uint32(b[at:])))
	at += 4
	v.body = int32(at)
	if n < 0 || at+n+int64(topicLenBytes) > size {
		return View{}, ErrSize
	}
	at += n
	if topicLenBytes == 1 {
		n = int64(int8(b[at]))
	} else {
		n = int64(int16(binary.BigEndian.Uint16(b[at:])))
	}
	at += int64(topicLenBytes)
	if n < 0 || at+n+2 > size {
		return View{}, ErrSize
	}
	v.topic, v.topicLen = int32(at), int32(n)
	at += n
	n = int64(int16(binary.BigEndian.Uint16(b[at:])))
	at += 2
	if n < 0 || at+n != size {
		return View{}, ErrSize
	}
	v.props, v.propsLen = int32(at), int32(n)
	return v, nil
}

func hostSize(v6 bool) int {
	if v6 {
		return 20
	}
	return 8
}

func (v View) i32(at int32) int32 { return int32(binary.BigEndian.Uint32(v.b[at:])) }
func (v View) i64(at int32) int64 { return int64(binary.BigEndian.Uint64(v.b[at:])) }

// Bytes are the whole record.
func (v View) Bytes() []byte { return v.b }

// Size is the length of the record in bytes.
func (v View) Size() int32 { return int32(len(v.b)) }

// Magic is MagicV1 or MagicV2.
func (v View) Magic() uint32 { return binary.BigEndian.Uint32(v.b[offMagic:]) }

// BodyCRC is the stored checksum of the body.
func (v View) BodyCRC() uint32 { return binary.BigEndian.Uint32(v.b[offCRC:]) }

func (v View) QueueID() int32            { return v.i32(offQueueID) }
func (v View) Flag() int32               { return v.i32(offFlag) }
func (v View) QueueOffset() int64        { return v.i64(offQOffset) }
func (v View) PhysicalOffset() int64     { return v.i64(offPhys) }
func (v View) SysFlag() int32            { return v.i32(offSysFlag) }
func (v View) BornTime() int64           { return v.i64(offBorn) } // milliseconds since 1970
func (v View) StoreTime() int64          { return v.i64(v.store) } // milliseconds since 1970
func (v View) ReconsumeTimes() int32     { return v.i32(v.body - 16) }
func (v View) PreparedOffset() int64     { return v.i64(v.body - 12) }
func (v View) BornHost() netip.AddrPort  { return host(v.b[offHosts:v.store]) }
func (v View) StoreHost() netip.AddrPort { return host(v.b[v.store+8 : v.body-16]) }

// Body is the body as stored: compressed when the producer compressed it.
func (v View) Body() []byte {
	n := v.i32(v.body - 4)
	return v.b[v.body : v.body+n : v.body+n]
}

// Topic is the topic name.
func (v View) Topic() []byte { return v.b[v.topic : v.topic+v.topicLen : v.topic+v.topicLen] }

// Properties is the encoded property text.
func (v View) Properties() []byte { return v.b[v.props:] }

// Property finds a property; see the function Property.
func (v View) Property(name string) ([]byte, bool) { return Property(v.Properties(), name) }

// TagsCode is what the queue index keeps of the tag: see the function TagsCode.
func (v View) TagsCode() int64 { return TagsCode(v.Properties()) }

// TxType is FlagTxNone, FlagTxPrepared, FlagTxCommit or FlagTxRollback.
func (v View) TxType() int32 { return v.SysFlag() & FlagTxMask }

// CheckBody returns ErrCRC unless the body has the checksum that the record says.
func (v View) CheckBody() error {
	if CRC(v.Body()) != v.BodyCRC() {
		return ErrCRC
	}
	return nil
}

// CRC is RocketMQ's body checksum: CRC-32 (IEEE) without its top bit; 0 for no bytes.
func CRC(body []byte) uint32 { return crc32.ChecksumIEEE(body) & 0x7FFFFFFF }

// host decodes IP bytes and a 4-byte port. A port outside 0..65535 keeps its low 16 bits.
func host(b []byte) netip.AddrPort {
	n := len(b) - 4
	port := uint16(binary.BigEndian.Uint32(b[n:]))
	if n == 4 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)), port)
}

// putHost writes a host and returns its length: 8 or 20 bytes.
func putHost(b []byte, h netip.AddrPort) int {
	n := 4
	switch a := h.Addr(); {
	case a.Is4() || a.Is4In6():
		ip := a.As4()
		copy(b, ip[:])
	case a.Is6():
		ip := a.As16()
		n = copy(b, ip[:])
	default: // the zero AddrPort
		clear(b[:4])
	}
	binary.BigEndian.PutUint32(b[n:], uint32(h.Port()))
	return n + 4
}

func isV6(h netip.AddrPort) bool { return h.Addr().Is6() && !h.Addr().Is4In6() }

// Fields are the fields of a record that is to be written. The magic number follows from the topic's length, the host
// bits of SysFlag from the hosts.
type Fields struct {
	BodyCRC        uint32 // CRC(Body), computed by the caller outside any lock
	QueueID        int32
	Flag           int32
	QueueOffset    int64
	PhysicalOffset int64
	SysFlag        int32
	BornTime       int64
	BornHost       netip.AddrPort
	StoreTime      int64
	StoreHost      netip.AddrPort
	ReconsumeTimes int32
	PreparedOffset int64
	Body           []byte
	Topic          string
	Properties     []byte
}

// Size is the number of bytes of the record that Append makes of f.
func Size(f *Fields) int {
	n := MinSize + len(f.Body) + len(f.Topic) + len(f.Properties)
	if len(f.Topic) > MaxTopicV1 {
		n++
	}
	if isV6(f.BornHost) {
		n += 12
	}
	if isV6(f.StoreHost) {
		n += 12
	}
	return n
}

// LimitError says which field of a record is out of range.
type LimitError struct {
	Field       string
	Value       int
	Least, Most int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("record: %s has %d bytes, allowed are %d to %d", e.Field, e.Value, e.Least, e.Most)
}

// Check returns a *LimitError when f cannot be written.
func Check(f *Fields) error {
	if n := len(f.Topic); n < 1 || n > MaxTopicBytes {
		return &LimitError{"topic", n, 1, MaxTopicBytes}
	}
	if n := len(f.Properties); n > MaxPropertiesBytes {
		return &LimitError{"properties", n, 0, MaxPropertiesBytes}
	}
	return nil
}

// Append appends the record to dst. The fields must be inside the limits of Check.
func Append(dst []byte, f *Fields) []byte {
	sys := f.SysFlag &^ (FlagBornV6 | FlagStoreV6)
	if isV6(f.BornHost) {
		sys |= FlagBornV6
	}
	if isV6(f.StoreHost) {
		sys |= FlagStoreV6
	}
	magic := MagicV1
	if len(f.Topic) > MaxTopicV1 {
		magic = MagicV2
	}
	size := Size(f)
	at := len(dst)
	dst = slices.Grow(dst, size)[:at+size]
	b := dst[at:]
	be := binary.BigEndian
	_ = b[MinSize-1]
	be.PutUint32(b, uint32(size))
	be.PutUint32(b[offMagic:], magic)
	be.PutUint32(b[offCRC:], f.BodyCRC)
	be.PutUint32(b[offQueueID:], uint32(f.QueueID))
	be.PutUint32(b[offFlag:], uint32(f.Flag))
	be.PutUint64(b[offQOffset:], uint64(f.QueueOffset))
	be.PutUint64(b[offPhys:], uint64(f.PhysicalOffset))
	be.PutUint32(b[offSysFlag:], uint32(sys))
	be.PutUint64(b[offBorn:], uint64(f.BornTime))
	n := offHosts + putHost(b[offHosts:], f.BornHost)
	be.PutUint64(b[n:], uint64(f.StoreTime))
	n += 8
	n += putHost(b[n:], f.StoreHost)
	be.PutUint32(b[n:], uint32(f.ReconsumeTimes))
	be.PutUint64(b[n+4:], uint64(f.PreparedOffset))
	be.PutUint32(b[n+12:], uint32(len(f.Body)))
	n += 16
	n += copy(b[n:], f.Body)
	if magic == MagicV1 {
		b[n] = byte(len(f.Topic))
		n++
	} else {
		be.PutUint16(b[n:], uint16(len(f.Topic)))
		n += 2
	}
	n += copy(b[n:], f.Topic)
	be.PutUint16(b[n:], uint16(len(f.Properties)))
	copy(b[n+2:], f.Properties)
	return dst
}

// AppendBlank appends the head of a padding record for a segment that has left bytes left.
func AppendBlank(dst []byte, left int64) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(left))
	return binary.BigEndian.AppendUint32(dst, MagicBlank)
}

// SetPlace patches what is known only when a record takes its place in the log. b starts with a valid record.
func SetPlace(b []byte, queueOffset, physicalOffset, storeTime int64) {
	SetQueueOffset(b, queueOffset)
	SetPhysicalOffset(b, physicalOffset)
	SetStoreTime(b, storeTime)
}

// The setters below patch one field of the valid record that b starts with.

func SetQueueID(b []byte, id int32)         { binary.BigEndian.PutUint32(b[offQueueID:], uint32(id)) }
func SetQueueOffset(b []byte, o int64)      { binary.BigEndian.PutUint64(b[offQOffset:], uint64(o)) }
func SetPhysicalOffset(b []byte, pos int64) { binary.BigEndian.PutUint64(b[offPhys:], uint64(pos)) }

// SetStoreTime sets STORETIMESTAMP, in milliseconds since 1970.
func SetStoreTime(b []byte, ms int64) {
	at := offHosts + hostSize(b[offSysFlag+3]&byte(FlagBornV6) != 0)
	binary.BigEndian.PutUint64(b[at:], uint64(ms))
}

// SetSysFlag sets SYSFLAG; the host bits keep the values that fit the stored hosts.
func SetSysFlag(b []byte, flag int32) {
	keep := int32(binary.BigEndian.Uint32(b[offSysFlag:])) & (FlagBornV6 | FlagStoreV6)
	binary.BigEndian.PutUint32(b[offSysFlag:], uint32(flag&^(FlagBornV6|FlagStoreV6)|keep))
}

// SetReconsumeTimes sets RECONSUMETIMES.
func SetReconsumeTimes(b []byte, n int32) { binary.BigEndian.PutUint32(b[tail(b):], uint32(n)) }

// SetPreparedOffset sets PREPARED_TX_OFFSET.
func SetPreparedOffset(b []byte, o int64) { binary.BigEndian.PutUint64(b[tail(b)+4:], uint64(o)) }

// tail is the offset of RECONSUMETIMES.
func tail(b []byte) int {
	sys := int32(binary.BigEndian.Uint32(b[offSysFlag:]))
	return offHosts + hostSize(sys&FlagBornV6 != 0) + 8 + hostSize(sys&FlagStoreV6 != 0)
}

package wire

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxErrorText is the most bytes of an error text that this package writes.
const MaxErrorText = 1024

// MaxListMessages is the most members of a MessageList.
const MaxListMessages = 1000

var errorSchema = schema{name: "ErrorMesssage", fields: []fieldSpec{1: {"errorMessage", protowire.BytesType}}}

// AppendErrorText appends an ErrorMesssage header (the protocol's own spelling) with text, made valid UTF-8 and cut to MaxErrorText bytes.
func AppendErrorText(dst []byte, text string) []byte {
	if len(text) > MaxErrorText {
		cut := MaxErrorText
		for cut > MaxErrorText-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "?")
	}
	return appendStringField(dst, 1, text)
}

// ErrorText reads an ErrorMesssage header. ok is false when the message carries no text.
func ErrorText(header []byte) (text []byte, ok bool, err error) {
	var seen uint32
	err = errorSchema.each(header, &seen, func(f protoField) error {
		text, ok = f.b, true
		return nil
	})
	return text, ok, err
}

// CommitStatus is an outcome of a transaction as a peer reports it. Other numbers decode and are contradictions.
type CommitStatus int32

const (
	Committed CommitStatus = 1
	Rollback  CommitStatus = 2
	NoAction  CommitStatus = 3 // not decided: ask again later
)

// CommitRollback ends a half message.
type CommitRollback struct {
	MessageID  []byte
	Committed  bool
	ServerData []byte // what the answer to the half carried; HasServerData
	PostDelay  uint64 // milliseconds from the commit; non-zero replaces the message's
	Status     CommitStatus

	HasServerData, HasPostDelay, HasStatus bool
}

var commitSchema = schema{
	name: "MessageCommitRollbackHeader",
	fields: []fieldSpec{1: {"messageId", protowire.BytesType}, 2: {"committed", protowire.VarintType}, 3: {"serverData", protowire.BytesType},
		4: {"postDelayTime", protowire.VarintType}, 5: {"status", protowire.VarintType}},
	required: 1<<1 | 1<<2,
}

// Decode replaces m with the message in b.
func (m *CommitRollback) Decode(b []byte) error {
	*m = CommitRollback{}
	var seen uint32
	err := commitSchema.each(b, &seen, func(f protoField) error {
		switch f.num {
		case 1:
			m.MessageID = f.b
		case 2:
			m.Committed = f.n != 0
		case 3:
			m.ServerData, m.HasServerData = f.b, true
		case 4:
			m.PostDelay, m.HasPostDelay = f.n, true
		case 5:
			m.Status, m.HasStatus = CommitStatus(f.n), true
		}
		return nil
	})
	if err != nil {
		return err
	}
	return commitSchema.missing(seen)
}

// Append appends the encoded message.
func (m *CommitRollback) Append(dst []byte) []byte {
	dst = appendBytesField(dst, 1, m.MessageID)
	dst = appendVarintField(dst, 2, boolBit(m.Committed))
	if m.HasServerData {
		dst = appendBytesField(dst, 3, m.ServerData)
	}
	if m.HasPostDelay {
		dst = appendVarintField(dst, 4, m.PostDelay)
	}
	if m.HasStatus {
		dst = appendVarintField(dst, 5, uint64(int64(m.Status)))
	}
	return dst
}

// Outcome is what the message decides. Committed and Status can contradict each other, and then nothing is decided
// (rulings A15): an error, never a commit on doubt.
func (m *CommitRollback) Outcome() (CommitStatus, error) {
	switch {
	case !m.HasStatus && m.Committed, m.HasStatus && m.Committed && m.Status == Committed:
		return Committed, nil
	case !m.HasStatus, !m.Committed && m.Status == Rollback:
		return Rollback, nil
	case !m.Committed && m.Status == NoAction:
		return NoAction, nil
	}
	return 0, &HeaderError{Message: commitSchema.name, Field: "status",
		Reason: fmt.Sprintf("%d contradicts committed=%v; legal are (true, 1), (false, 2), (false, 3) and no status", m.Status, m.Committed)}
}

// Check asks a producer for the outcome of a half message.
type Check struct {
	Header        MessageHeader
	ServerData    []byte
	HasServerData bool
}

var checkSchema = schema{
	name:     "CheckMessageHeader",
	fields:   []fieldSpec{1: {"messageHeader", protowire.BytesType}, 2: {"serverData", protowire.BytesType}},
	required: 1 << 1,
}

// Decode replaces m with the message in b.
func (m *Check) Decode(b []byte) error {
	m.Header.Reset()
	m.ServerData, m.HasServerData = nil, false
	var seen uint32
	var inner FieldSet
	err := checkSchema.each(b, &seen, func(f protoField) error {
		if f.num == 1 {
			return m.Header.merge(f.b, &inner)
		}
		m.ServerData, m.HasServerData = f.b, true
		return nil
	})
	if err == nil {
		err = checkSchema.missing(seen)
	}
	if err == nil {
		err = messageSchema.missing(uint32(inner))
	}
	return err
}

// Append appends the encoded message.
func (m *Check) Append(dst []byte) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(m.Header.Size()))
	dst = m.Header.Append(dst)
	if m.HasServerData {
		dst = appendBytesField(dst, 2, m.ServerData)
	}
	return dst
}

// CheckAck answers a Check. Everything but a result of Committed or Rollback is "not decided" (rulings A19).
type CheckAck struct {
	MessageID  []byte
	Result     CommitStatus
	ServerData []byte
	PostDelay  uint64 // milliseconds from the commit; non-zero replaces the message's

	HasResult, HasServerData, HasPostDelay bool
}

var checkAckSchema = schema{
	name: "CheckMessageAckHeader",
	fields: []fieldSpec{1: {"messageId", protowire.BytesType}, 2: {"result", protowire.VarintType}, 3: {"serverData", protowire.BytesType},
		4: {"postDelayTime", protowire.VarintType}},
	required: 1 << 1,
}

// Decode replaces m with the message in b.
func (m *CheckAck) Decode(b []byte) error {
	*m = CheckAck{}
	var seen uint32
	err := checkAckSchema.each(b, &seen, func(f protoField) error {
		switch f.num {
		case 1:
			m.MessageID = f.b
		case 2:
			m.Result, m.HasResult = CommitStatus(f.n), true
		case 3:
			m.ServerData, m.HasServerData = f.b, true
		case 4:
			m.PostDelay, m.HasPostDelay = f.n, true
		}
		return nil
	})
	if err != nil {
		return err
	}
	return checkAckSchema.missing(seen)
}

// Append appends the encoded message.
func (m *CheckAck) Append(dst []byte) []byte {
	dst = appendBytesField(dst, 1, m.MessageID)
	if m.HasResult {
		dst = appendVarintField(dst, 2, uint64(int64(m.Result)))
	}
	if m.HasServerData {
		dst = appendBytesField(dst, 3, m.ServerData)
	}
	if m.HasPostDelay {
		dst = appendVarintField(dst, 4, m.PostDelay)
	}
	return dst
}

// Subscription carries one binding as text; see [ParseBinding].
type Subscription struct{ Binding []byte }

var subscriptionSchema = schema{name: "Subscription", fields: []fieldSpec{1: {"binding", protowire.BytesType}}, required: 1 << 1}

// Decode replaces m with the message in b.
func (m *Subscription) Decode(b []byte) error {
	*m = Subscription{}
	var seen uint32
	err := subscriptionSchema.each(b, &seen, func(f protoField) error {
		m.Binding = f.b
		return nil
	})
	if err != nil {
		return err
	}
	return subscriptionSchema.missing(seen)
}

// Append appends the encoded message.
func (m *Subscription) Append(dst []byte) []byte { return appendBytesField(dst, 1, m.Binding) }

// Durability is what a send had reached when it was answered. It travels in a field of our own, and only to clients
// that negotiated FeatureDurability.
type Durability uint8

// The durabilities, weakest first. DurabilityUnstated is the zero value and never sent.
const (
	DurabilityUnstated   Durability = iota
	DurabilityMemory                // answered before the write
	DurabilityAsync                 // in the page cache: survives the process
	DurabilitySync                  // fsynced
	DurabilityReplicated            // on the in-sync replicas
)

var durabilityNames = [...]string{"unstated", "memory", "async", "sync", "replicated"}

// String is the name used in configuration.
func (d Durability) String() string {
	if int(d) < len(durabilityNames) {
		return durabilityNames[d]
	}
	return fmt.Sprintf("durability %d", uint8(d))
}

// MessageAck answers a send or a delivery. Both fields of the protocol are optional: a nil slice is an absent field.
// A present field of no bytes decodes as an empty, non-nil slice.
type MessageAck struct {
	ServerData []byte // lets any server find the stored message
	MessageID  []byte
	Durability Durability // field 16, ours
}

const fieldDurability = 16

var ackSchema = schema{
	name:   "MessageAckHeader",
	fields: []fieldSpec{1: {"serverData", protowire.BytesType}, 2: {"messageId", protowire.BytesType}, fieldDurability: {"durability", protowire.VarintType}},
}

// Decode replaces m with the message in b.
func (m *MessageAck) Decode(b []byte) error {
	*m = MessageAck{}
	for len(b) > 0 {
		f, rest, reason := nextField(b)
		if reason != "" {
			return &HeaderError{Message: ackSchema.name, Reason: reason}
		}
		b = rest
		if int(f.num) >= len(ackSchema.fields) || ackSchema.fields[f.num].name == "" {
			continue
		}
		if f.typ != ackSchema.fields[f.num].typ {
			return wrongType(&ackSchema, &f)
		}
		switch f.num {
		case 1:
			m.ServerData = present(f.b)
		case 2:
			m.MessageID = present(f.b)
		case fieldDurability:
			if f.n > uint64(DurabilityReplicated) {
				f.n = uint64(DurabilityUnstated)
			}
			m.Durability = Durability(f.n)
		}
	}
	return nil
}

// present keeps an empty field apart from an absent one.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Append appends the encoded message.
func (m *MessageAck) Append(dst []byte) []byte {
	if m.ServerData != nil {
		dst = appendBytesField(dst, 1, m.ServerData)
	}
	if m.MessageID != nil {
		dst = appendBytesField(dst, 2, m.MessageID)
	}
	if m.Durability != DurabilityUnstated {
		dst = appendVarintField(dst, fieldDurability, uint64(m.Durability))
	}
	return dst
}

// Size is how many bytes Append adds.
func (m *MessageAck) Size() int {
	n := 0
	if m.ServerData != nil {
		n += sizeBytesField(1, len(m.ServerData))
	}
	if m.MessageID != nil {
		n += sizeBytesField(2, len(m.MessageID))
	}
	if m.Durability != DurabilityUnstated {
		n += sizeVarintField(fieldDurability, uint64(m.Durability))
	}
	return n
}

// ListMessage is a member of a MessageList.
type ListMessage struct {
	Header MessageHeader
	Body   []byte
}

var (
	memberSchema = schema{
		name:     "Message",
		fields:   []fieldSpec{1: {"messageHeader", protowire.BytesType}, 2: {"body", protowire.BytesType}},
		required: 1<<1 | 1<<2,
	}
	listSchema    = schema{name: "MessageList", fields: []fieldSpec{1: {"messageList", protowire.BytesType}}}
	listAckSchema = schema{name: "MessageListAckHeader", fields: []fieldSpec{1: {"ackList", protowire.BytesType}}}
)

// DecodeMessageList appends the members of the MessageList in b to dst. More than MaxListMessages are refused.
func DecodeMessageList(dst []ListMessage, b []byte) ([]ListMessage, error) {
	var seen uint32
	start := len(dst)
	err := listSchema.each(b, &seen, func(f protoField) error {
		if len(dst)-start == MaxListMessages {
			return &HeaderError{Message: listSchema.name, Field: "messageList", Reason: fmt.Sprintf("more than %d members", MaxListMessages)}
		}
		dst = append(dst, ListMessage{})
		return dst[len(dst)-1].decode(f.b)
	})
	if err != nil {
		return dst[:start], err
	}
	return dst, nil
}

func (m *ListMessage) decode(b []byte) error {
	var seen uint32
	var inner FieldSet
	err := memberSchema.each(b, &seen, func(f protoField) error {
		if f.num == 1 {
			return m.Header.merge(f.b, &inner)
		}
		m.Body = f.b
		return nil
	})
	if err == nil {
		err = memberSchema.missing(seen)
	}
	if err == nil {
		err = messageSchema.missing(uint32(inner))
	}
	return err
}

// AppendListMessage appends one member of a MessageList.
func AppendListMessage(dst []byte, h *MessageHeader, body []byte) []byte {
	hs := h.Size()
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(sizeBytesField(1, hs)+sizeBytesField(2, len(body))))
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(hs))
	dst = h.Append(dst)
	return appendBytesField(dst, 2, body)
}

// DecodeMessageListAck appends the members of the MessageListAckHeader in b to dst.
func DecodeMessageListAck(dst []MessageAck, b []byte) ([]MessageAck, error) {
	var seen uint32
	start := len(dst)
	err := listAckSchema.each(b, &seen, func(f protoField) error {
		dst = append(dst, MessageAck{})
		return dst[len(dst)-1].Decode(f.b)
	})
	if err != nil {
		return dst[:start], err
	}
	return dst, nil
}

// AppendListAck appends one member of a MessageListAckHeader.
func AppendListAck(dst []byte, m *MessageAck) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(m.Size()))
	return m.Append(dst)
}

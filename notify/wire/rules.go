package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of what a client sends (rulings A23, spec/notify.md 4.3). Sizes are in bytes.
const (
	MessageIDLen  = 16
	MaxName       = 64      // topic, message type, group
	MaxBody       = 4 << 20 // as stored; at least 1
	MaxProperties = 16 << 10
	MaxKey        = 128 // property key; at least 1
	MaxValue      = 4096
	MaxText       = 1024 // publisherHostName and the reply fields
)

// BindTimeout is how long a server may take to answer a SUBSCRIBE or an UNSUBSCRIBE: it answers when the change holds. Requests behind
// it on the connection wait for that, heartbeats included, so a client must not count them meanwhile.
const BindTimeout = 5 * time.Second

// SystemPrefix starts the names of properties that belong to the system.
const SystemPrefix = "__"

// Keys of system properties that clients may send (rulings A24). A user's own keys never start with SystemPrefix.
const (
	KeyUnit        = "__unit"
	KeyShadow      = "__shadow"
	KeyGrey        = "__grey"
	KeyTrace       = "__trace"
	KeyRoute       = "__route"
	KeyCompression = "__ctype" // CompressionLZ4 or CompressionZstd; absent: zlib
	KeyTypePrefix  = "__t."    // and a property's key: the property's type, a letter of TypeLetters
)

// Values of KeyCompression.
const (
	CompressionZlib = "zlib"
	CompressionLZ4  = "lz4"
	CompressionZstd = "zstd"
)

// TypeLetters are the values of KeyTypePrefix properties: boolean, byte, short, int, long, float, double (rulings A26).
const TypeLetters = "ZBHIJFD"

// KeyKeys is how RocketMQ's KEYS reach a subscriber. No client sends it.
const KeyKeys = "__keys"

// SystemKey tells whether a key is the system's and, if so, whether a client may send it.
func SystemKey(key []byte) (system, allowed bool) {
	if len(key) < 2 || key[0] != '_' || key[1] != '_' {
		return false, false
	}
	switch string(key) {
	case KeyUnit, KeyShadow, KeyGrey, KeyTrace, KeyRoute, KeyCompression:
		return true, true
	}
	return true, len(key) > len(KeyTypePrefix) && string(key[:len(KeyTypePrefix)]) == KeyTypePrefix
}

// systemTopics are names that RocketMQ keeps for itself, whatever the prefix.
var systemTopics = [...]string{
	"TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
	"SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC",
}

var systemPrefixes = [...]string{"rmq_sys_", "%RETRY%", "%DLQ%", "%LMQ%"}

// CheckTopic checks the name of a topic: 1 to MaxName of A-Z a-z 0-9 _ % -, none of RocketMQ's own.
func CheckTopic[T ~string | ~[]byte](name T) error {
	if len(name) == 0 || len(name) > MaxName {
		return inputError("topic", string(name), fmt.Sprintf("has %d bytes; 1 to %d are allowed", len(name), MaxName))
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '%' || c == '-') {
			return inputError("topic", string(name), "may have letters, digits, '_', '%' and '-' only")
		}
	}
	if c := name[0]; c == 'r' || c == '%' {
		for _, p := range systemPrefixes {
			if len(name) >= len(p) && string(name[:len(p)]) == p {
				return inputError("topic", string(name), "names that start with "+p+" belong to the system")
			}
		}
	}
	for _, s := range systemTopics {
		if string(name) == s {
			return inputError("topic", string(name), "belongs to the system")
		}
	}
	return nil
}

// CheckType checks a message type: 1 to MaxName visible ASCII characters without '|' and '*'.
func CheckType[T ~string | ~[]byte](name T) error {
	if err := checkVisible("messageType", name); err != nil {
		return err
	}
	for i := 0; i < len(name); i++ {
		if name[i] == '|' || name[i] == '*' {
			return inputError("messageType", string(name), "may not have '|' or '*'")
		}
	}
	return nil
}

// CheckGroup checks a group's name: 1 to MaxName visible ASCII characters. field names it in the error.
func CheckGroup[T ~string | ~[]byte](field string, name T) error { return checkVisible(field, name) }

func checkVisible[T ~string | ~[]byte](field string, name T) error {
	if len(name) == 0 || len(name) > MaxName {
		return inputError(field, string(name), fmt.Sprintf("has %d bytes; 1 to %d are allowed", len(name), MaxName))
	}
	for i := 0; i < len(name); i++ {
		if name[i] <= ' ' || name[i] > '~' {
			return inputError(field, string(name), "may have visible ASCII characters only")
		}
	}
	return nil
}

// CheckProperty checks one property as it comes from a peer, not whether its key is the system's.
func CheckProperty[T ~string | ~[]byte](key, value T) error {
	if len(key) == 0 || len(key) > MaxKey {
		return inputError("property key", string(key), fmt.Sprintf("has %d bytes; 1 to %d are allowed", len(key), MaxKey))
	}
	if !cleanText(key) {
		return inputError("property key", string(key), "must be UTF-8 without the bytes 0x00, 0x01 and 0x02")
	}
	if len(value) > MaxValue {
		return inputError("value of property", string(key), fmt.Sprintf("has %d bytes; at most %d are allowed", len(value), MaxValue))
	}
	if !cleanText(value) {
		return inputError("value of property", string(key), "must be UTF-8 without the bytes 0x00, 0x01 and 0x02")
	}
	return nil
}

// cleanText is UTF-8 without the two bytes that separate RocketMQ's properties, and without the zero byte, by which the store
// tells properties that a power cut has torn.
func cleanText[T ~string | ~[]byte](s T) bool {
	ascii := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= 2 {
			return false
		} else if c >= utf8.RuneSelf {
			ascii = false
		}
	}
	return ascii || utf8.ValidString(string(s))
}

// CheckBody checks the size of a body as it is sent.
func CheckBody(n int) error {
	if n < 1 || n > MaxBody {
		return inputError("body", "", fmt.Sprintf("has %d bytes; 1 to %d are allowed", n, MaxBody))
	}
	return nil
}

// CheckPropertiesSize checks the sum of all key and value bytes.
func CheckPropertiesSize(sum int) error {
	if sum > MaxProperties {
		return inputError("properties", "", fmt.Sprintf("have %d bytes of keys and values; at most %d are allowed", sum, MaxProperties))
	}
	return nil
}

// Validate checks a header that a client sends: all of rulings A23, A24 and A25. Nothing that it passes can change the
// meaning of a stored record. Fields that the server sets itself are not looked at.
func (h *MessageHeader) Validate() error {
	if len(h.ID) != MessageIDLen {
		return inputError("id", fmt.Sprintf("%x", h.ID[:min(len(h.ID), 2*MessageIDLen)]), fmt.Sprintf("has %d bytes; %d are needed", len(h.ID), MessageIDLen))
	}
	if err := CheckTopic(h.Topic); err != nil {
		return err
	}
	if err := CheckType(h.Type); err != nil {
		return err
	}
	if err := CheckGroup("groupId", h.Group); err != nil {
		return err
	}
	if h.Set.Has(FieldTargetGroup) && len(h.TargetGroup) > 0 {
		if err := CheckGroup("targetGroup", h.TargetGroup); err != nil {
			return err
		}
	}
	for _, f := range [...]Field{FieldPublisherHost, FieldReplyToTopic, FieldReplyToType, FieldReplyWhenDelivery} {
		if !h.Set.Has(f) {
			continue
		}
		if v := h.optionalBytes(f); len(v) > MaxText || !cleanText(v) {
			return inputError(FieldName(f), string(v), fmt.Sprintf("must be at most %d bytes of UTF-8 without 0x00, 0x01 and 0x02", MaxText))
		}
	}
	sum := 0
	for i := range h.Properties {
		p := &h.Properties[i]
		if err := CheckProperty(p.Key, p.Value); err != nil {
			return err
		}
		if system, allowed := SystemKey(p.Key); system {
			if !allowed {
				return inputError("property key", string(p.Key), "names that start with __ belong to the system")
			}
			if err := checkSystemValue(p); err != nil {
				return err
			}
		}
		sum += len(p.Key) + len(p.Value)
	}
	if err := CheckPropertiesSize(sum); err != nil {
		return err
	}
	// The other fields take less than 8 KiB and a property at most 11 bytes beside its text, so most need no exact count.
	if sum+11*len(h.Properties) < MaxHeader-deliveryRoom-8<<10 {
		return nil
	}
	if n := h.Size(); n > MaxHeader-deliveryRoom {
		return inputError("header", "", fmt.Sprintf("has %d bytes encoded; at most %d are allowed", n, MaxHeader-deliveryRoom))
	}
	return nil
}

// deliveryRoom is kept free in a header that a client sends for what a delivery adds: GMTCreated, GMTLastDelivery,
// deliveryCount and targetGroup.
const deliveryRoom = 128

func checkSystemValue(p *Property) error {
	switch {
	case !p.HasValue:
	case string(p.Key) == KeyCompression:
		if v := string(p.Value); v != CompressionZlib && v != CompressionLZ4 && v != CompressionZstd {
			return inputError("value of property", KeyCompression, "must be zlib, lz4 or zstd")
		}
	case bytes.HasPrefix(p.Key, []byte(KeyTypePrefix)):
		if len(p.Value) != 1 || !strings.Contains(TypeLetters, string(p.Value)) {
			return inputError("value of property", string(p.Key), "must be one letter of "+TypeLetters)
		}
	}
	return nil
}

func inputError(field, value, rule string) error {
	if value != "" {
		value = Quote(value)
	}
	return &InputError{Field: field, Value: value, Rule: rule}
}

// Quote shortens s for an error text and makes it printable.
func Quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

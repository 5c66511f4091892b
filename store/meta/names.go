package meta

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits of names and counts (spec/remoting.md 7).
const (
	MaxTopicBytes      = 127   // a plain topic name
	MaxLongTopicBytes  = 255   // %RETRY%group and %DLQ%group
	MaxGroupBytes      = 255   // what RocketMQ 4.9 and its Go client allow; HEAD of the Java client stops at 120
	MaxQueues          = 16384 // read or write queues of one topic: 16 times the largest that RocketMQ makes itself
	MaxPerm            = 7     // bits: 4 read, 2 write, 1 inherit
	maxAttributes      = 64
	maxAttributeBytes  = 1024 // of a key or a value
	maxRetryQueues     = MaxQueues
	maxRememberedExtra = 64 << 10 // bytes of unknown fields kept for one entry
)

// Prefixes of the topics that RocketMQ makes for a group.
const (
	RetryPrefix = "%RETRY%"
	DLQPrefix   = "%DLQ%"
)

// Permission bits of a topic.
const (
	PermRead    = 4
	PermWrite   = 2
	PermInherit = 1
)

// Invalid says which field of a request broke which limit. Put, CheckTopic and CheckGroup return it.
type Invalid struct {
	Field string // as RocketMQ names it
	Value string // shortened to 64 bytes
	Limit string // what would be accepted
}

func (e *Invalid) Error() string {
	return fmt.Sprintf("%s %q is not valid: want %s", e.Field, e.Value, e.Limit)
}

func invalid(field, value, limit string) error {
	if len(value) > 64 {
		value = strings.ToValidUTF8(value[:61], "") + "..."
	}
	return &Invalid{Field: field, Value: value, Limit: limit}
}

func invalidInt(field string, v int64, limit string) error {
	return &Invalid{Field: field, Value: strconv.FormatInt(v, 10), Limit: limit}
}

// CheckTopic returns nil when name is a legal topic name, else an *Invalid.
func CheckTopic(name string) error {
	limit := MaxTopicBytes
	if strings.HasPrefix(name, RetryPrefix) || strings.HasPrefix(name, DLQPrefix) {
		limit = MaxLongTopicBytes
	}
	return checkName("topic", name, limit)
}

// CheckGroup returns nil when name is a legal group name, else an *Invalid.
func CheckGroup(name string) error { return checkName("group", name, MaxGroupBytes) }

func checkName(field, name string, limit int) error {
	if name == "" || len(name) > limit {
		return invalid(field, name, "1 to "+strconv.Itoa(limit)+" characters, not "+strconv.Itoa(len(name)))
	}
	if !PlainGroup(name) {
		return invalid(field, name, "only characters of ^[%|a-zA-Z0-9_-]+$")
	}
	return nil
}

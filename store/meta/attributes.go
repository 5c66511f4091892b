package meta

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Attributes of topics that RocketMQ 5.3 has. The store keeps them for RocketMQ's tools and acts on none.
const (
	MessageTypeAttribute   = "message.type"
	QueueTypeAttribute     = "queue.type"
	CleanupPolicyAttribute = "cleanup.policy"
	ReserveTimeAttribute   = "reserve.time"
)

// MixedMessages is a value of MessageTypeAttribute that RocketMQ refuses, too, unless it is configured otherwise.
const MixedMessages = "MIXED"

// attribute is what a topic may have under one name.
type attribute struct {
	limit string // what is accepted
	check func(string) bool
	fixed bool // given when the topic is made and never changed
}

var attributes = map[string]attribute{
	MessageTypeAttribute:   {"UNSPECIFIED, NORMAL, FIFO, DELAY or TRANSACTION", oneOf("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"), false},
	QueueTypeAttribute:     {"SimpleCQ or BatchCQ", oneOf("SimpleCQ", "BatchCQ"), true},
	CleanupPolicyAttribute: {"DELETE or COMPACTION", oneOf("DELETE", "COMPACTION"), true},
	ReserveTimeAttribute:   {"a whole number of milliseconds, or -1", reserveTime, false},
	DurabilityAttribute:    {durabilityLimit, func(s string) bool { _, err := ParseDurability(s); return err == nil }, false},
	UntilConsumedAttribute: {untilConsumedLimit, func(s string) bool { _, err := parseUntilConsumed(s); return err == nil }, false},
	OnceAttribute:          {"true or false", oneOf("true", "false"), false},
}

func oneOf(words ...string) func(string) bool {
	return func(s string) bool { return slices.Contains(words, s) }
}

func reserveTime(s string) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	return err == nil && n >= -1
}

// KnownAttribute tells whether a topic may be given an attribute of the name.
func KnownAttribute(name string) bool {
	_, ok := attributes[name]
	return ok
}

// FixedAttribute tells whether the attribute is given when the topic is made and never changed.
func FixedAttribute(name string) bool { return attributes[name].fixed }

// CheckAttribute returns nil when a topic may be given the attribute, else an *Invalid. Attributes that a topic has are not looked at again:
// a table that another broker wrote may have others, which stay as they are.
func CheckAttribute(name, value string) error {
	a, ok := attributes[name]
	switch {
	case !ok:
		return invalid("attribute", name, "one of "+strings.Join(slices.Sorted(maps.Keys(attributes)), ", "))
	case name == MessageTypeAttribute && value == MixedMessages:
		return invalid("attribute "+name, value, a.limit+"; mixed message types are not enabled")
	case !a.check(value):
		return invalid("attribute "+name, value, a.limit)
	}
	return nil
}

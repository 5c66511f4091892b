package meta

import (
	"encoding/json"
	"maps"
	"time"
)

// Durability is what an acknowledged send has reached.
type Durability uint8

const (
	Memory Durability = 1 + iota // answered before the write
	Async                        // in the page cache: survives kill -9
	Sync                         // fsynced
)

// String is the form in configuration and in [DurabilityAttribute].
func (d Durability) String() string {
	switch d {
	case Memory:
		return "memory"
	case Async:
		return "async"
	case Sync:
		return "sync"
	}
	return ""
}

// ParseDurability is the inverse of String; "replicated" is known but refused until there is replication.
func ParseDurability(s string) (Durability, error) {
	for d := Memory; d <= Sync; d++ {
		if s == d.String() {
			return d, nil
		}
	}
	limit := durabilityLimit
	if s == "replicated" {
		limit += "; there is no replication yet"
	}
	return 0, invalid(DurabilityAttribute, s, limit)
}

const (
	durabilityLimit    = "memory, async or sync"
	untilConsumedLimit = "true, or a duration of at most 168h"
)

// DurabilityAttribute is the key of a topic's attributes that holds its durability. RocketMQ brokers keep attributes
// they do not know.
const DurabilityAttribute = "fusion.durability"

// UntilConsumedAttribute is the key of a topic's attributes that asks for its messages to be kept until its push groups have read
// them: for how long at most, a duration as in "36h" of at most MostUntilConsumed, or "true" for all of that.
const UntilConsumedAttribute = "fusion.until-consumed"

// MostUntilConsumed bounds how long messages wait for their groups.
const MostUntilConsumed = 7 * 24 * time.Hour

// KeepUntilConsumed says how long messages of the topic are kept for groups that have not read them; false when not longer than any other.
func (t *Topic) KeepUntilConsumed() (most time.Duration, ok bool) {
	s, ok := t.Attributes[UntilConsumedAttribute]
	if !ok {
		return 0, false
	}
	most, err := parseUntilConsumed(s)
	return most, err == nil
}

func parseUntilConsumed(s string) (time.Duration, error) {
	if s == "true" {
		return MostUntilConsumed, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > MostUntilConsumed {
		return 0, invalid(UntilConsumedAttribute, s, untilConsumedLimit)
	}
	return d, nil
}

// OnceAttribute is the key of a topic's attributes that says, with the value true, that of messages with one unique id only the
// first is stored.
const OnceAttribute = "fusion.idempotent"

// DataVersion orders versions of a table (RocketMQ's dataVersion): by StateVersion, then Counter, then Timestamp.
type DataVersion struct {
	Counter      int64 `json:"counter"`
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // milliseconds since 1970
}

// Topic is RocketMQ's TopicConfig.
type Topic struct {
	Name        string            `json:"topicName"`
	ReadQueues  int32             `json:"readQueueNums"`  // 1..MaxQueues
	WriteQueues int32             `json:"writeQueueNums"` // 1..MaxQueues
	Perm        int32             `json:"perm"`           // 0..MaxPerm
	FilterType  string            `json:"topicFilterType"`
	SysFlag     int32             `json:"topicSysFlag"`
	Order       bool              `json:"order"`
	Attributes  map[string]string `json:"attributes"`

	// Extra are the fields this version does not know, by name, as they were read. Put keeps those of the stored topic
	// when it is nil.
	Extra map[string]json.RawMessage `json:"-"`
}

// DefaultTopic is a topic with RocketMQ's defaults for the fields a file may leave out.
func DefaultTopic(name string) Topic {
	return Topic{Name: name, ReadQueues: 16, WriteQueues: 16, Perm: PermRead | PermWrite, FilterType: "SINGLE_TAG"}
}

// Durability is the durability the topic asks for, or def when it asks for none.
func (t *Topic) Durability(def Durability) Durability {
	if len(t.Attributes) == 0 {
		return def
	}
	if s, ok := t.Attributes[DurabilityAttribute]; ok {
		if d, err := ParseDurability(s); err == nil {
			return d
		}
	}
	return def
}

// Once tells whether messages with one unique id are stored once.
func (t *Topic) Once() bool { return t.Attributes[OnceAttribute] == "true" }

// topicFields are the known fields in the order in which they are written.
type topicFields struct {
	Attributes  map[string]string `json:"attributes"`
	Order       bool              `json:"order"`
	Perm        int32             `json:"perm"`
	ReadQueues  int32             `json:"readQueueNums"`
	FilterType  string            `json:"topicFilterType"`
	Name        string            `json:"topicName"`
	SysFlag     int32             `json:"topicSysFlag"`
	WriteQueues int32             `json:"writeQueueNums"`
}

// MarshalJSON writes the known fields and Extra, ordered by name.
func (t Topic) MarshalJSON() ([]byte, error) {
	f := topicFields{t.Attributes, t.Order, t.Perm, t.ReadQueues, t.FilterType, t.Name, t.SysFlag, t.WriteQueues}
	if f.Attributes == nil {
		f.Attributes = map[string]string{}
	}
	return marshalWith(f, t.Extra)
}

// UnmarshalJSON sets the fields that are there and leaves the others as they are; what it does not know goes to Extra.
func (t *Topic) UnmarshalJSON(b []byte) error {
	// Without its attributes, since decoding into a map would change that of whoever shares it.
	f := topicFields{nil, t.Order, t.Perm, t.ReadQueues, t.FilterType, t.Name, t.SysFlag, t.WriteQueues}
	extra, err := unmarshalWith(b, &f, topicNames)
	if err != nil {
		return err
	}
	if f.Attributes == nil {
		f.Attributes = t.Attributes
	}
	*t = Topic{f.Name, f.ReadQueues, f.WriteQueues, f.Perm, f.FilterType, f.SysFlag, f.Order, f.Attributes, extra}
	return nil
}

var topicNames = fieldNames(topicFields{})

func (t *Topic) check() error {
	if err := CheckTopic(t.Name); err != nil {
		return err
	}
	const queues = "1 to 16384"
	if t.ReadQueues < 1 || t.ReadQueues > MaxQueues {
		return invalidInt("readQueueNums", int64(t.ReadQueues), queues)
	}
	if t.WriteQueues < 1 || t.WriteQueues > MaxQueues {
		return invalidInt("writeQueueNums", int64(t.WriteQueues), queues)
	}
	if t.Perm < 0 || t.Perm > MaxPerm {
		return invalidInt("perm", int64(t.Perm), "0 to 7")
	}
	if f := t.FilterType; f != "" && f != "SINGLE_TAG" && f != "MULTI_TAG" {
		return invalid("topicFilterType", f, "SINGLE_TAG or MULTI_TAG")
	}
	if s, ok := t.Attributes[DurabilityAttribute]; ok {
		if _, err := ParseDurability(s); err != nil {
			return err
		}
	}
	if s, ok := t.Attributes[UntilConsumedAttribute]; ok {
		if _, err := parseUntilConsumed(s); err != nil {
			return err
		}
	}
	if s, ok := t.Attributes[OnceAttribute]; ok && s != "true" && s != "false" {
		return invalid(OnceAttribute, s, "true or false")
	}
	if err := checkAttributes(t.Attributes); err != nil {
		return err
	}
	return checkExtra(t.Extra)
}

// clone returns a copy that shares no memory a caller could change; a missing filter type gets RocketMQ's default.
func (t Topic) clone() *Topic {
	if t.FilterType == "" {
		t.FilterType = "SINGLE_TAG"
	}
	t.Attributes = maps.Clone(t.Attributes)
	t.Extra = maps.Clone(t.Extra)
	return &t
}

func checkAttributes(m map[string]string) error {
	if len(m) > maxAttributes {
		return invalidInt("attributes", int64(len(m)), "at most 64 of them")
	}
	for k, v := range m {
		if k == "" || len(k) > maxAttributeBytes || len(v) > maxAttributeBytes {
			return invalid("attributes", k, "keys of 1 to 1024 bytes and values of at most 1024 bytes")
		}
	}
	return nil
}

func checkExtra(m map[string]json.RawMessage) error {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	if n > maxRememberedExtra {
		return invalidInt("unknown fields", int64(n), "at most 65536 bytes")
	}
	return nil
}

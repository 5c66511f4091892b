package membership

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Limits of one heartbeat. The largest honest ones seen have tens of groups and a few hundred subscriptions.
const (
	MaxHeartbeatBytes = 1 << 20
	MaxGroups         = 1000
)

// ConsumeType, Model and ConsumeFrom are the words of the protocol; clients of the C++ family send their ordinals.
var (
	consumeTypes = []string{"CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"}
	models       = []string{"BROADCASTING", "CLUSTERING"}
	consumeFroms = []string{
		"CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", "CONSUME_FROM_MIN_OFFSET",
		"CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP",
	}
)

// Broadcasting is the model in which every member takes every message and keeps its own progress.
const Broadcasting = "BROADCASTING"

// Heartbeat is what a client says about itself every 30 seconds (spec/remoting.md 3.6).
type Heartbeat struct {
	ClientID    string
	Producers   []string // group names
	Consumers   []Consumer
	Fingerprint int32 // not 0 in heartbeats of the second form
	WithoutSub  bool  // membership only: the subscriptions known so far stay
}

// Consumer is one consumer group of a heartbeat.
type Consumer struct {
	Group string
	Type  string // one of consumeTypes
	Model string // one of models
	From  string // one of consumeFroms
	Subs  []Subscription
}

// Subscription is what a group wants of a topic, as its client wrote it.
type Subscription struct {
	Topic   string
	Expr    string
	Type    string // "TAG" when the client left it out
	Tags    []string
	Version int64 // larger is newer; the unit is the client's
	Class   bool  // class filter mode: obsolete, passes every message
}

// ParseHeartbeat decodes the body of a heartbeat. Numbers may be quoted, enumerations may be names or ordinals, and
// unknown fields are skipped, since clients in four languages differ in all of that. An error names the field, the value
// and the limit.
func ParseHeartbeat(body []byte) (Heartbeat, error) {
	if len(body) > MaxHeartbeatBytes {
		return Heartbeat{}, fmt.Errorf("heartbeat: body has %d bytes, at most %d are allowed", len(body), MaxHeartbeatBytes)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return Heartbeat{}, fmt.Errorf("heartbeat: the body is missing")
	}
	var w struct {
		ClientID  string `json:"clientID"`
		Producers []struct {
			Group string `json:"groupName"`
		} `json:"producerDataSet"`
		Consumers []struct {
			Group string `json:"groupName"`
			Type  word   `json:"consumeType"`
			Model word   `json:"messageModel"`
			From  word   `json:"consumeFromWhere"`
			Subs  []struct {
				Topic   string   `json:"topic"`
				Expr    string   `json:"subString"`
				Type    string   `json:"expressionType"`
				Tags    []string `json:"tagsSet"`
				Version number   `json:"subVersion"`
				Class   bool     `json:"classFilterMode"`
			} `json:"subscriptionDataSet"`
		} `json:"consumerDataSet"`
		Fingerprint number `json:"heartbeatFingerprint"`
		WithoutSub  bool   `json:"withoutSub"`
	}
	if err := json.Unmarshal(body, &w); err != nil {
		return Heartbeat{}, fmt.Errorf("heartbeat: %w", err)
	}
	if w.ClientID == "" {
		return Heartbeat{}, fmt.Errorf("heartbeat: clientID is missing")
	}
	if n := len(w.Producers) + len(w.Consumers); n > MaxGroups {
		return Heartbeat{}, fmt.Errorf("heartbeat: %d groups, at most %d are allowed", n, MaxGroups)
	}
	hb := Heartbeat{ClientID: w.ClientID, Fingerprint: int32(w.Fingerprint), WithoutSub: w.WithoutSub}
	for _, p := range w.Producers {
		if p.Group != "" {
			hb.Producers = append(hb.Producers, p.Group)
		}
	}
	for _, c := range w.Consumers {
		if c.Group == "" {
			return Heartbeat{}, fmt.Errorf("heartbeat: a consumerDataSet entry has no groupName")
		}
		out := Consumer{
			Group: c.Group,
			Type:  c.Type.of(consumeTypes, "CONSUME_PASSIVELY"),
			Model: c.Model.of(models, "CLUSTERING"),
			From:  c.From.of(consumeFroms, "CONSUME_FROM_LAST_OFFSET"),
		}
		for _, s := range c.Subs {
			if s.Topic == "" {
				return Heartbeat{}, fmt.Errorf("heartbeat: a subscription of group %q has no topic", c.Group)
			}
			if s.Type == "" {
				s.Type = "TAG"
			}
			out.Subs = append(out.Subs, Subscription{Topic: s.Topic, Expr: s.Expr, Type: s.Type, Tags: s.Tags, Version: int64(s.Version), Class: s.Class})
		}
		hb.Consumers = append(hb.Consumers, out)
	}
	return hb, nil
}

// word is an enumeration, sent by name or by ordinal.
type word string

func (w *word) UnmarshalJSON(b []byte) error {
	*w = word(strings.Trim(string(b), `"`))
	return nil
}

// of gives the name of the word in names, def when it is not one of them.
func (w word) of(names []string, def string) string {
	for i, n := range names {
		if string(w) == n || string(w) == strconv.Itoa(i) {
			return n
		}
	}
	return def
}

// number is an integer, quoted or not.
type number int64

func (n *number) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	if s == "" || s == "null" {
		return nil
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return fmt.Errorf("%.40q is not an integer", s)
	}
	*n = number(v)
	return nil
}

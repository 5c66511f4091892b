package rocketmq

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fusionmq/fusionmq/store/record"
)

// PopKind is what a record of a revive topic says.
type PopKind string

const (
	PopCheckPoint PopKind = "ck"   // messages were handed out and wait for acknowledgement
	PopAck        PopKind = "ack"  // one of them was acknowledged
	PopBatchAck   PopKind = "bAck" // some of them were
)

// Pop is a record of a revive topic.
type Pop struct {
	Kind      PopKind
	Topic     string
	Group     string
	Queue     int32
	Start     int64   // offset of the first message that was handed out
	PopTime   int64   // milliseconds since 1970
	Invisible int64   // of a check point: milliseconds until what is not acknowledged is handed out again
	Count     int     // of a check point: messages
	Offsets   []int64 // of a check point, those of its messages; of an acknowledgement, what is acknowledged
	Broker    string
}

// maxPop is the most messages that one pop hands out.
const maxPop = 64

// DecodePop reads a record of a revive topic.
func DecodePop(v record.View) (Pop, error) {
	if !strings.HasPrefix(string(v.Topic()), RevivePrefix) {
		return Pop{}, fmt.Errorf("pop: topic %q is no revive topic", v.Topic())
	}
	tag, _ := v.Property(record.PropTags)
	return decodePop(PopKind(tag), v.Body())
}

func decodePop(kind PopKind, body []byte) (Pop, error) {
	var doc struct {
		Start     int64   `json:"so"`
		PopTime   int64   `json:"pt"`
		Invisible int64   `json:"it"`
		Count     int     `json:"n"`
		Queue     int32   `json:"q"`
		Topic     string  `json:"t"`
		Group     string  `json:"c"`
		Diffs     []int64 `json:"d"`
		Broker    string  `json:"bn"`
		Ack       int64   `json:"ao"`
		Acks      []int64 `json:"aol"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return Pop{}, fmt.Errorf("pop: %s: %w", kind, err)
	}
	p := Pop{Kind: kind, Topic: doc.Topic, Group: doc.Group, Queue: doc.Queue, Start: doc.Start, PopTime: doc.PopTime, Broker: doc.Broker}
	switch kind {
	case PopCheckPoint:
		if doc.Count < 0 || doc.Count > maxPop || len(doc.Diffs) > maxPop {
			return Pop{}, fmt.Errorf("pop: check point of %d messages, at most %d are possible", max(doc.Count, len(doc.Diffs)), maxPop)
		}
		p.Invisible, p.Count = doc.Invisible, doc.Count
		for i := range doc.Count {
			d := int64(i) // without differences the offsets follow each other
			if i < len(doc.Diffs) {
				d = doc.Diffs[i]
			}
			p.Offsets = append(p.Offsets, doc.Start+d)
		}
	case PopAck:
		p.Offsets = []int64{doc.Ack}
	case PopBatchAck:
		p.Offsets = doc.Acks
	default:
		return Pop{}, fmt.Errorf("pop: tag %q is not known", kind)
	}
	return p, nil
}

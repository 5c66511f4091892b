package broker

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store/meta"
)

// attributeChange is one part of the field attributes of UPDATE_AND_CREATE_TOPIC: +key=value sets, -key takes away.
type attributeChange struct {
	key, value string
	set        bool
}

// changeAttributes applies "+key=value,-key" to the attributes of a topic. Codes and the beginnings of remarks are those of RocketMQ 5.3.3,
// whose checks come in this order: the whole text, then what is taken away, then names and values.
func changeAttributes(was map[string]string, text string, fresh bool) (map[string]string, error) {
	changes, err := parseAttributes(strings.Clone(text))
	if err != nil || len(changes) == 0 {
		return was, err
	}
	if slices.Contains(changes, attributeChange{meta.MessageTypeAttribute, meta.MixedMessages, true}) {
		return nil, refuse(remoting.RespInvalidParameter, "MIXED message type is not supported. Want %s", messageTypes)
	}
	seen := map[string]bool{}
	for _, c := range changes {
		if c.key == "" || strings.ContainsAny(c.key, "+-") {
			return nil, badAttributes("kv string format wrong. attributes has the key %q; want +key=value or -key, separated by commas", clip(c.key))
		}
		_, have := was[c.key]
		switch {
		case seen[c.key]:
			return nil, badAttributes("alter duplication key. key: %s; name each attribute once", clip(c.key))
		case c.set:
		case fresh:
			return nil, badAttributes("only add attribute is supported while creating topic. key: %s; leave -%s out, a new topic has no attributes",
				clip(c.key), clip(c.key))
		case !have:
			return nil, badAttributes("attempt to delete a nonexistent key: %s; the topic does not have it", clip(c.key))
		}
		seen[c.key] = true
	}
	m := maps.Clone(was)
	if m == nil {
		m = map[string]string{}
	}
	for _, c := range changes {
		if c.set || meta.FixedAttribute(c.key) {
			if err := checkAttribute(c, fresh); err != nil {
				return nil, err
			}
		}
		if c.set {
			m[c.key] = c.value
		} else {
			delete(m, c.key) // also one that only another broker knows
		}
	}
	return m, nil
}

func parseAttributes(text string) (changes []attributeChange, err error) {
	for part := range strings.SplitSeq(strings.TrimRight(text, ","), ",") {
		if part == "" && strings.Trim(text, ",") == "" {
			return nil, nil
		}
		key, value, set := strings.Cut(part, "=")
		switch {
		case set && !strings.Contains(key, "+"):
			return nil, badAttributes("add/alter attribute format is wrong: %s; want +key=value", clip(key))
		case !set && !strings.Contains(key, "-"):
			return nil, badAttributes("delete attribute format is wrong: %s; want -key, or +key=value", clip(part))
		case set && value == "":
			return nil, badAttributes("attribute %s has no value; want +key=value, or -key to take it away", clip(strings.TrimPrefix(key, "+")))
		}
		c := attributeChange{key[1:], value, set}
		if slices.ContainsFunc(changes, func(o attributeChange) bool { return o.key == c.key && o.set == set }) {
			return nil, badAttributes("key duplication: %s; name each attribute once", clip(key))
		}
		changes = append(changes, c)
	}
	return changes, nil
}

const messageTypes = "[UNSPECIFIED, TRANSACTION, FIFO, DELAY, NORMAL]"

// checkAttribute looks at a known name's value, or refuses the name.
func checkAttribute(c attributeChange, fresh bool) error {
	if meta.KnownAttribute(c.key) && meta.FixedAttribute(c.key) && !fresh {
		return badAttributes("attempt to update an unchangeable attribute. key: %s; it can only be given when the topic is created", c.key)
	}
	err := meta.CheckAttribute(c.key, c.value)
	if err == nil {
		return nil
	}
	var says string
	switch c.key {
	case meta.MessageTypeAttribute:
		says = "value is not in set: [UNSPECIFIED, TRANSACTION, FIFO, MIXED, DELAY, NORMAL]"
	case meta.QueueTypeAttribute:
		says = "value is not in set: [SimpleCQ, BatchCQ]"
	case meta.CleanupPolicyAttribute:
		says = "value is not in set: [DELETE, COMPACTION]"
	case meta.ReserveTimeAttribute:
		says = "For input string: " + strconv.Quote(clip(c.value))
		if _, bad := strconv.ParseInt(c.value, 10, 64); bad == nil {
			says = "value is not in range(-1, " + strconv.FormatInt(math.MaxInt64, 10) + ")"
		}
	default:
		if meta.KnownAttribute(c.key) {
			return err // one of ours
		}
		says = "unsupported key: " + clip(c.key)
	}
	return badAttributes("%s; %s", says, err.Error())
}

func badAttributes(format string, args ...any) error {
	return refuse(remoting.RespSystemError, format, args...)
}

package fusion

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/fusion/httpapi"
	"github.com/fusionmq/fusionmq/store/meta"
)

// ownAttributes is how the names of attributes begin that have fields of their own.
const ownAttributes = "fusion."

// otherAttributes are those that have no field; nil when there are none.
func otherAttributes(all map[string]string) map[string]string {
	other := maps.Clone(all)
	maps.DeleteFunc(other, func(k, _ string) bool { return strings.HasPrefix(k, ownAttributes) })
	if len(other) == 0 {
		return nil
	}
	return other
}

// permOf is the inverse of permWord, 0 for any other text.
func permOf(word string) int32 {
	switch word {
	case "r":
		return meta.PermRead
	case "w":
		return meta.PermWrite
	case "rw":
		return meta.PermRead | meta.PermWrite
	}
	return 0
}

// ChangeTopic changes a topic. Durability, permissions and queues count for the requests that come after the answer.
func (v *adminView) ChangeTopic(_ context.Context, name string, c httpapi.TopicChange) (out httpapi.TopicChanged, err error) {
	a := v.app()
	before, after, err := a.store.Topics().Change(name, func(t *meta.Topic) error {
		if a.systemTopic(t) {
			return &httpapi.Problem{Status: http.StatusForbidden, Field: "name", Value: name, Detail: fmt.Sprintf("topic %q belongs to the system", name)}
		}
		return changeTopic(t, &c)
	})
	if errors.Is(err, meta.ErrNoTopic) {
		return out, noTopic(name)
	}
	if err != nil {
		return out, refusal(err)
	}
	out.Before, out.After = v.topic(before).Topic, v.topic(after).Topic
	a.log.Info("topic changed", "topic", name, "read_queues", after.ReadQueues, "write_queues", after.WriteQueues, "perm", out.After.Perm,
		"durability", out.After.Durability, "idempotent", out.After.Idempotent, "until_consumed", out.After.UntilConsumed, "by", "http")
	return out, nil
}

func noTopic(name string) error {
	return &httpapi.Problem{Status: http.StatusNotFound, Field: "name", Value: name, Detail: fmt.Sprintf("there is no topic %q", name)}
}

// changeTopic applies c to t. What the metadata checks itself is left to it.
func changeTopic(t *meta.Topic, c *httpapi.TopicChange) error {
	if c.ReadQueues != nil {
		t.ReadQueues = *c.ReadQueues
	}
	if c.WriteQueues != nil {
		t.WriteQueues = *c.WriteQueues
	}
	if c.Perm != nil {
		perm := permOf(*c.Perm)
		if perm == 0 && *c.Perm != "-" {
			return badField("perm", *c.Perm, "r, w, rw, or - for neither")
		}
		t.Perm = t.Perm&^(meta.PermRead|meta.PermWrite) | perm
	}
	if c.Order != nil {
		t.Order = *c.Order
	}
	set := func(attribute string, value *string, off string) {
		switch {
		case value == nil:
		case *value == off:
			delete(t.Attributes, attribute)
		default:
			t.Attributes[attribute] = *value
		}
	}
	set(meta.DurabilityAttribute, c.Durability, "default")
	set(meta.UntilConsumedAttribute, c.UntilConsumed, "off")
	if c.Idempotent != nil {
		word := fmt.Sprint(*c.Idempotent)
		set(meta.OnceAttribute, &word, "false")
	}
	for _, k := range slices.Sorted(maps.Keys(c.Attributes)) {
		if strings.HasPrefix(k, ownAttributes) {
			return badField("attributes", k, "a name that does not begin with "+ownAttributes+"; those have fields of their own")
		}
		if err := changeAttribute(t, k, c.Attributes[k]); err != nil {
			return err
		}
	}
	return nil
}

// changeAttribute sets an attribute, or takes it away with nil. What the topic has already may be anything: another broker may have known more.
func changeAttribute(t *meta.Topic, name string, value *string) error {
	field := "attributes." + name
	was, have := t.Attributes[name]
	switch {
	case value != nil && have && was == *value, value == nil && !have:
		return nil
	case meta.FixedAttribute(name):
		text := "null"
		if value != nil {
			text = *value
		}
		return badField(field, text, "what it was when the topic was created; it cannot be changed")
	case value == nil:
		delete(t.Attributes, name)
		return nil
	}
	var bad *meta.Invalid
	if err := meta.CheckAttribute(name, *value); errors.As(err, &bad) {
		if !meta.KnownAttribute(name) {
			field = "attributes" // the name is what is wrong
		}
		return badField(field, bad.Value, bad.Limit)
	}
	t.Attributes[name] = *value
	return nil
}

func badField(field, value, want string) error {
	return &httpapi.Problem{Status: http.StatusBadRequest, Field: field, Value: value, Limit: want, Detail: fmt.Sprintf("%s is %q; want %s", field, value, want)}
}

// Retention tells when files of the log go.
func (v *adminView) Retention(context.Context) (httpapi.Retention, error) {
	s := v.app().store
	kept, done := s.Kept(), s.Cleaned()
	r := kept.Retention
	out := httpapi.Retention{
		AgeSeconds: int64(r.Age / time.Second), ViewWindowSeconds: int64(r.ViewWindow / time.Second), DeleteHours: append([]int{}, r.Hours...),
		DiskUsedPercent: done.DiskUsed, MaxUsedPercent: int64(r.MaxUsed), ForcedPercent: int64(r.ForcedAt), RefusePercent: int64(r.RefuseAt),
		MinPosition: s.Bounds().Min, Files: kept.Segments, OldestFileUntil: time.UnixMilli(kept.Oldest).UTC(),
		DeletedFiles: done.Segments, MovedMessages: done.Moved, LostMessages: done.Lost, ExpiredMessages: done.Expired,
	}
	if err := s.Err(); err != nil {
		out.Problem = err.Error()
	}
	return out, nil
}

// Clean deletes the files that may go.
func (v *adminView) Clean(ctx context.Context) (out httpapi.CleanResult, err error) {
	a := v.app()
	if out.DeletedFiles, err = a.store.Clean(); err != nil {
		return out, &httpapi.Problem{Status: http.StatusServiceUnavailable, Detail: "files of the log could not be deleted: " + err.Error()}
	}
	a.log.Info("looked for files of the log to delete", "deleted", out.DeletedFiles, "by", "http")
	out.Retention, err = v.Retention(ctx)
	return out, err
}

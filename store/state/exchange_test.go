package state

import (
	"slices"
	"sort"
)

// plainExchange keeps the life of every binding in a list. A message's properties are its tag.
type plainExchange struct{ lives []life }

type life struct {
	topic, group string
	b            Binding
	since, until int64 // until 0: it lasts
}

func (x *plainExchange) find(topic, group string, b Binding) *life {
	for i := range x.lives {
		if l := &x.lives[i]; l.topic == topic && l.group == group && l.b.Kind == b.Kind && l.b.Expr == b.Expr && l.until == 0 {
			return l
		}
	}
	return nil
}

func (x *plainExchange) Bind(at int64, topic, group string, b Binding) {
	if l := x.find(topic, group, b); l != nil {
		l.b = b
		return
	}
	x.lives = append(x.lives, life{topic: topic, group: group, b: b, since: at})
}

func (x *plainExchange) Unbind(at int64, topic, group string, b Binding) {
	if l := x.find(topic, group, b); l != nil {
		l.until = at
	}
}

func (x *plainExchange) Interested(topic string) bool {
	return slices.ContainsFunc(x.lives, func(l life) bool { return l.topic == topic })
}

func (l *life) match(at int64, topic, tag string) bool {
	return l.topic == topic && l.since < at && (l.until == 0 || at < l.until) && (l.b.Kind == BindFanout || l.b.Expr == tag)
}

func (x *plainExchange) Targets(dst []string, at int64, topic string, properties []byte) []string {
	n := len(dst)
	for i := range x.lives {
		if l := &x.lives[i]; l.match(at, topic, string(properties)) && !slices.Contains(dst[n:], l.group) {
			dst = append(dst, l.group)
		}
	}
	sort.Strings(dst[n:])
	return dst
}

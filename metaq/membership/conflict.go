package membership

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store/meta"
)

// Members of a group have to subscribe alike: the group has one subscription, that of whoever was heard last with the largest version, and the
// queues are shared among all. Where they do not, each overwrites what the others want, and messages are passed over that some of them are for.

// maxShown is the most bytes that are kept of what a member subscribes, for people.
const maxShown = 1024

var formSeed = maphash.MakeSeed()

// form is what a member of a group says in a heartbeat: what is the same in members that fit together, and its text. Versions and the
// group's own retry topic are left out.
func form(c *remoting.ConsumerData) (sum uint64, text string) {
	lines := make([]string, 0, len(c.SubscriptionDataSet))
	for i := range c.SubscriptionDataSet {
		s := &c.SubscriptionDataSet[i]
		if strings.HasPrefix(s.Topic, meta.RetryPrefix) {
			continue
		}
		kind, expr := s.ExpressionType, strings.TrimSpace(s.SubString)
		if kind == "" || kind == "TAG" {
			kind, expr = "", tags(expr, s.TagsSet)
		} else {
			kind += " "
		}
		lines = append(lines, s.Topic+": "+kind+expr)
	}
	slices.Sort(lines)
	text = strings.Join(lines, "; ")
	if c.MessageModel == remoting.Broadcasting {
		text = "broadcasting; " + text
	}
	sum = max(maphash.String(formSeed, text), 1) // 0 is unknown
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "..."
	}
	return sum, strings.Clone(text)
}

// tags is a tag expression in one of the ways in which it can be written.
func tags(expr string, set []string) string {
	if expr == "" && len(set) == 0 {
		return "*"
	}
	var all []string
	for part := range strings.SplitSeq(expr, "||") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	if len(all) == 0 {
		all = slices.Clone(set)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " || ")
}

// countLocked counts a member's form in or out.
func (g *consumerGroup) countLocked(m *Member, n int) {
	if m == nil || m.sum == 0 {
		return
	}
	if g.forms == nil {
		g.forms = map[uint64]int{}
	}
	if g.forms[m.sum] += n; g.forms[m.sum] <= 0 {
		delete(g.forms, m.sum)
	}
}

// Conflicts are the consumer groups whose members subscribe differently, in order.
func (r *Registry) Conflicts() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []string
	for name, g := range r.mu.consumers {
		if len(g.forms) > 1 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Conflict reports whether members of a group subscribe differently.
func (r *Registry) Conflict(group string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := r.mu.consumers[group]
	return g != nil && len(g.forms) > 1
}

package fusion

import (
	"slices"
	"strconv"

	"github.com/fusionmq/fusionmq/fusion/httpapi"
)

// pulls is what one answer needs about groups that pull.
type pulls struct {
	topics  map[string][]string // by group, sorted: what it subscribes now or has committed an offset for
	members map[string][]httpapi.Member
	// conflicts are groups whose members subscribe differently.
	conflicts map[string]bool
}

// readPulls reads what is known about the named groups, all of them in one pass.
func (a *App) readPulls(groups []string) pulls {
	ps := pulls{topics: make(map[string][]string, len(groups)), members: make(map[string][]httpapi.Member, len(groups)), conflicts: map[string]bool{}}
	for _, g := range groups {
		ps.topics[g], ps.members[g] = nil, []httpapi.Member{}
	}
	if a.broker != nil {
		for _, g := range a.broker.ConsumerGroups() {
			if _, wanted := ps.topics[g.Name]; !wanted {
				continue
			}
			ps.topics[g.Name] = slices.Clone(g.Topics)
			ps.conflicts[g.Name] = g.Conflict
			for _, m := range g.Members {
				ps.members[g.Name] = append(ps.members[g.Name], httpapi.Member{ID: m.ClientID, Address: m.Addr, Language: m.Language, Version: strconv.Itoa(int(m.Version)), Subs: m.Subs})
			}
		}
	}
	for _, o := range a.store.Offsets().All() {
		if topics, wanted := ps.topics[o.Group]; wanted && (len(topics) == 0 || topics[len(topics)-1] != o.Topic) {
			ps.topics[o.Group] = append(topics, o.Topic)
		}
	}
	for g, topics := range ps.topics {
		slices.Sort(topics)
		ps.topics[g] = slices.Compact(topics)
	}
	return ps
}

// connections counts what is open on both front ends.
func (a *App) connections() (pull, push int) {
	if a.broker != nil {
		pull = a.broker.Stats().Connections
	}
	if a.notify != nil {
		push = a.notify.Stats().Connections
	}
	return pull, push
}

package fusion

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/fusionmq/fusionmq/fusion/httpapi"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// Transactions lists undecided transactions in the order in which they are due.
func (v *adminView) Transactions(_ context.Context, q httpapi.TransactionQuery) (httpapi.Transactions, error) {
	s := v.app().store
	st := s.StateStats()
	out := httpapi.Transactions{Total: st.Halves}
	if q.Aside {
		out.Total = st.Aside
	}
	hs := make([]state.HalfState, q.Limit)
	hs = hs[:s.Halves(q.Aside, state.HalfState{}, hs)]
	out.Transactions = make([]httpapi.Transaction, 0, len(hs))
	for i := range hs {
		h := &hs[i]
		t := httpapi.Transaction{Address: h.Address, Topic: h.Topic, Checks: h.Checks, Aside: q.Aside, Due: time.UnixMilli(h.Due).UTC()}
		err := s.ReadHalf(h.Address, func(_ *state.HalfState, r record.View) error {
			prop := func(name string) string {
				b, _ := r.Property(name)
				return string(b)
			}
			n, _ := strconv.ParseInt(prop("REAL_QID"), 10, 32) // 0 when it says nothing, as for the store
			t.Queue, t.Group, t.ID, t.Keys, t.Bytes = int32(n), prop("PGROUP"), prop(record.PropUniqKey), prop(record.PropKeys), len(r.Body())
			t.Stored = time.UnixMilli(r.StoreTime()).UTC()
			return nil
		})
		if errors.Is(err, store.ErrNoHalf) {
			continue // it has ended since
		}
		if err != nil {
			t.Problem = err.Error()
		}
		out.Transactions = append(out.Transactions, t)
	}
	return out, nil
}

// EndTransaction commits a transaction or rolls it back.
func (v *adminView) EndTransaction(ctx context.Context, address string, e httpapi.TransactionEnd) (httpapi.TransactionEnded, error) {
	var none httpapi.TransactionEnded
	if e.Outcome != "commit" && e.Outcome != "rollback" {
		return none, &httpapi.Problem{Status: http.StatusBadRequest, Field: "outcome", Value: e.Outcome, Limit: "commit or rollback", Detail: fmt.Sprintf("outcome is %q; want commit or rollback", e.Outcome)}
	}
	unknown := &httpapi.Problem{Status: http.StatusNotFound, Field: "address", Value: address, Detail: fmt.Sprintf("there is no transaction %q", address)}
	at, err := strconv.ParseInt(address, 10, 64)
	if err != nil {
		return none, unknown
	}
	ends := []store.HalfEnd{{Address: at, Commit: e.Outcome == "commit"}}
	v.app().store.EndHalves(ctx, ends)
	switch err := ends[0].Err; {
	case err == nil, errors.Is(err, store.ErrFlushTimeout):
		v.app().log.Info("transaction ended by an operator", "address", at, "outcome", e.Outcome)
		return httpapi.TransactionEnded{Address: at, Outcome: e.Outcome}, nil
	case errors.Is(err, store.ErrNoHalf):
		return none, unknown
	case errors.Is(err, store.ErrEnded):
		return none, &httpapi.Problem{Status: http.StatusConflict, Field: "outcome", Value: e.Outcome, Detail: fmt.Sprintf("%s, and an outcome is final", err)}
	case errors.Is(err, store.ErrNoSpace), errors.Is(err, store.ErrFailed), errors.Is(err, store.ErrClosed):
		return none, &httpapi.Problem{Status: http.StatusServiceUnavailable, Detail: err.Error()}
	default:
		return none, err
	}
}

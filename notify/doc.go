// Package notify is the push front end: subscriptions, targets, delivery, acknowledgement and retry, over the embedded
// store.
//
// A [Service] is the one service behind all transports; package server speaks the Notify wire for it. A transport opens
// a [Session] for each connection, hands it what the client asks for, and writes what the session's [Outlet] is given.
//
// The parts: exchange says which groups a message is owed to, delivery which machine gets it and what became of it,
// mapping how a Notify message lies in a record. The service binds them to the store: it feeds the delivery machines
// with what the store's dispatcher says is owed, reads topics through the cursors of groups that are behind, loads
// retries that are due, and writes outcomes as operate-queue records, many at a time.
//
// # What a crash leaves
//
// A message is owed to a group by exactly one of: the window (attached groups), the cursor (detached ones), a retry line
// (named targets). All three are functions of the log. At [Service.Start] every group that the log calls attached is
// detached, so what was in flight becomes retries with their attempts as they were. Delivered again is what was not
// answered, and what was answered within the last flush (a few milliseconds; within the linger time, 250 ms, and a tick,
// for a message that other groups still hold, or that a cursor cannot pass because an earlier one is not answered).
//
// # Life cycle
//
//	svc := notify.New(notify.Options{...})
//	st, err := store.Open(store.Options{..., Exchange: svc.Exchange(), Observer: svc.Observer()})
//	err = svc.Start(st)
//	... transports ...
//	svc.Stop(ctx) // after the transports have closed their sessions
//	st.Close()
//
// # Locks, in the order in which they are taken
//
// Service.commit, group.mu, the ledger's, an outlet's. Service.mu (the tables of groups and sessions) is taken alone or
// before group.mu. The store is never called with group.mu held, because its dispatcher calls the observer, which
// takes group.mu.
package notify

// Package decide turns the descriptors of a request into hits, asks the store for all
// of them at once, and gives each descriptor its outcome. It knows no protocol:
// endpoints read requests into a Call, and write its outcomes. It imports the rules
// with what lies below them, the assignments, the store's interface and top.
//
// # Decisions
//
// Check refuses what is out of bounds. Match finds the limits of each descriptor, by
// the rules and the assignments, and makes hits with their keys, costs and roles.
// Decide asks the store, and counts in each rule the outcomes of its descriptors and
// what each limit said; with metrics.names: envoyproxy also the hits, in parts
// (hit_counting.go); and who was denied and who used the most, in the rule's top.Top (tops.go).
//
// # Looks and resets
//
// Look is Decide without its effects, for package explain: it asks Store.Check, which looks at
// the states and charges nothing.
//
// A reset has three steps: Resettable names the states, assign.Store.Reset deletes them
// and records that, and then Store.Forget makes each daemon forget the denials that
// involve them and what it counted alone. In memory Forget deletes the states
// themselves.
package decide

// Package top finds the top subjects of something, in bounded memory: of a rule, the
// subjects that were denied most, or that used most, over the last minute, 15 minutes and
// hour.
//
// It is Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent
// and Top-k Elements in Data Streams", 2005). Its counts are bounds: a subject had at
// most Count, and at least Count less Error; a subject that is missing had at most Floor.
// These hold for every stream, even one made to mislead. HeavyKeeper counts better on
// average, but only with a probability over its hashes, and forgets: it has no bound to
// print, and two of them cannot be added. These can: panes of time and daemons are merged
// as in Agarwal et al., "Mergeable Summaries" (2012), and the bounds of the sum are the
// sums of the bounds.
//
// Memory is bounded in bytes, since subjects are as long as callers like: for each Top,
// and overall by a Budget. If it does not suffice, less is kept and the bounds get wider.
//
// It imports bucket.
package top

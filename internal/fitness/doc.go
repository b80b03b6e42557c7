// Package fitness is the sample domain of the demo, the end-to-end tests and the benchmarks: results of school fitness
// tests as a teacher's platform publishes them, one JSON snapshot with a version for every change.
//
// [Generator] writes such events, any number of them, deterministically. [Model] reads raw events with decoding of its
// own and says what the current view must hold. The two share no code with each other or with the projector, so that an
// error in one of them shows as a difference and not as an agreement.
package fitness

package servertest

// OneLimit has one rule: five requests an hour for each user.
const OneLimit = `
domain: api
descriptors:
  - {key: user, rate_limit: {name: u, unit: hour, requests_per_unit: 5}}
`

// BenchLimits have a limit that nobody reaches, and one that denies all.
const BenchLimits = `
domain: api
descriptors:
  - key: user
    descriptors:
      - {key: route, rate_limit: {name: r, requests: 4000000000, period: 1h}}
      - {key: closed, rate_limit: {name: c, requests: 0, period: 1h}}
`

// FuzzLimits have rules at two levels, a pattern and a place.
const FuzzLimits = `
domain: api
hash_tag: tenant
descriptors:
  - key: user
    rate_limits:
      - {name: a, requests: 10, period: 1s}
      - {name: b, unit: hour, requests_per_unit: 100}
    descriptors:
      - {key: route, value: "/a*", rate_limit: {requests: 3, period: 90s, algorithm: sliding_window}}
      - {key: route, rate_limit: {unlimited: true}}
  - {key: tenant, rate_limit: {requests: 5, period: 1m, algorithm: sliding_log}}
`

// BodyX asks about the user x, as a body for /json and the API of takes.
const BodyX = `{"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]}`

// ReportLimits are in envoyproxy/ratelimit's spelling, so that they are charged in
// full for what a descriptor reports by hits_addend.
const ReportLimits = `
domain: api
descriptors:
  - {key: tokens, rate_limit: {unit: hour, requests_per_unit: 21}}
  - {key: calls, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 21}}
  - {key: north, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: south, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: strict, rate_limit: {unit: hour, requests_per_unit: 21, postpaid: false}}
  - {key: paid, rate_limit: {unit: hour, requests_per_unit: 21, postpaid: true}}
  - {key: closed, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: bucket, rate_limit: {algorithm: token_bucket, unit: hour, requests_per_unit: 21}}
`

// TakeLimits have a rule for each algorithm, and for each kind of answer.
const TakeLimits = `
domain: api
descriptors:
  - {key: token_bucket, rate_limit: {name: n, algorithm: token_bucket, requests: 10, period: 10s, burst: 4}}
  - {key: gcra, rate_limit: {name: n, algorithm: gcra, requests: 10, period: 10s, burst: 4}}
  - {key: leaky_bucket, rate_limit: {name: n, algorithm: leaky_bucket, requests: 10, period: 10s, burst: 4}}
  - {key: fixed_window, rate_limit: {name: n, algorithm: fixed_window, requests: 4, period: 10s}}
  - {key: sliding_window, rate_limit: {name: n, algorithm: sliding_window, requests: 4, period: 10s}}
  - {key: sliding_log, rate_limit: {name: n, algorithm: sliding_log, requests: 4, period: 10s}}
  - {key: closed, rate_limit: {requests: 0, period: 1s}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {name: s, algorithm: fixed_window, requests: 1, period: 1h}}
  - {key: paid, rate_limit: {algorithm: fixed_window, requests: 4, period: 1h, postpaid: true}}
  - key: several
    rate_limits:
      - {name: second, algorithm: fixed_window, requests: 2, period: 1s}
      - {name: hour, algorithm: fixed_window, requests: 3, period: 1h}
`

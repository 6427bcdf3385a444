package limitstest

// Example has most of what a limits file can say.
const Example = `# Limits of the API.
domain: d
algorithm: gcra
hash_tag: tenant
descriptors:
  - key: tenant
    rate_limit: {requests: 100, period: 90s, burst: 20}
    descriptors:
      - key: user
        value: alice
        rate_limits:
          - name: short
            algorithm: token_bucket
            requests: 10
            period: 1s
          - name: long
            algorithm: sliding_window
            requests: 250
            period: 1d
            sub_windows: 24
            postpaid: true
        on_store_failure: deny
      - key: user
        value: "bot-*"
        rate_limit: {unlimited: true, name: bots}
  - key: ip
    rate_limit:
      algorithm: fixed_window
      requests_per_unit: 5
      unit: Minute
  - key: job
    descriptors:
      - key: kind
        value: 15
        rate_limit: {requests: 0, period: 1h}
      - key: kind
        value: true
        rate_limit: {algorithm: sliding_log, requests: 1, period: 1.5h}
  - key: path
    value: /files/*
    share_threshold: true
    quota_mode: true
    value_to_metric: true
    metadata: {tier: free, weights: [1, 0.5, null], nested: {"on": yes}}
    rate_limits:
      - {name: burst, requests: 5, period: 1s, replaces: [{name: short}, {name: long}]}
      - {name: total, requests: 100, period: 1h}
  - key: path
    rate_limit: {requests: 7, period: 1h}
    shadow_mode: true
    detailed_metric: true
`

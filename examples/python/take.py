"""Takes from a running daemon. Usage: take.py HOST:PORT KEY=VALUE [COST]"""
import sys

import grpc
from ratelimit.v1 import ratelimit_pb2, ratelimit_pb2_grpc

address, (key, value), cost = sys.argv[1], sys.argv[2].split("=", 1), int((sys.argv + ["1"])[3])
with grpc.insecure_channel(address) as channel:
    service = ratelimit_pb2_grpc.RateLimitServiceStub(channel)
    entry = ratelimit_pb2.Entry(key=key, value=value)
    request = ratelimit_pb2.TakeRequest(domain="api", descriptors=[ratelimit_pb2.Descriptor(entries=[entry], cost=cost)])
    response = service.Take(request, timeout=5)
    for limit in response.limits:
        print("allowed" if limit.allowed else "denied", limit.remaining, "left")
    if response.HasField("retry_after"):  # else it is allowed, or can never be
        print("come back in", response.retry_after.ToTimedelta())

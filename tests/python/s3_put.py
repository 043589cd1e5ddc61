"""Puts the files of a folder into a bucket, under a prefix: s3_put.py FOLDER BUCKET PREFIX.

Endpoint and credentials are those of the AWS_* variables.
"""

import os
import sys

import boto3

folder, bucket, prefix = sys.argv[1:]
client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
for root, _, names in os.walk(folder):
    for name in names:
        path = os.path.join(root, name)
        key = f"{prefix}/{os.path.relpath(path, folder)}"
        with open(path, "rb") as content:
            client.put_object(Bucket=bucket, Key=key, Body=content.read())

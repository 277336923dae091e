# docker build -t isostep . && docker run --rm -v "$PWD/runs:/runs" isostep sample rings-and-stars --out /runs/first
FROM python:3.11-slim
WORKDIR /isostep
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt torch \
 && pip install --no-cache-dir --require-hashes --no-deps --requirement requirements.lock \
 && pip install --no-cache-dir --no-deps --no-build-isolation .
WORKDIR /
ENTRYPOINT ["isostep"]

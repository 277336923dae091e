# docker build -t isostep . && docker run --rm -v "$PWD/runs:/runs" isostep sample rings-and-stars --out /runs/first
FROM python:3.11-slim
WORKDIR /isostep
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt '.[fast,data]'
WORKDIR /
ENTRYPOINT ["isostep"]
